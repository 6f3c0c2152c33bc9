"""Whether a pod's scheduling map is the one that the webhook read, so that its containers really see its cards.

Annotations can be written by whoever may change pods; what the containers' environment says can't be changed any more.
So the map, what was noted of it, and the environment have to agree; else the pod is not bound.
"""

from collections.abc import Callable, Mapping
from typing import Any

from pod_scheduling.domain.maps.pod_identity import identity_of
from pod_scheduling.domain.maps.scheduling_map import (
    MAP_ANNOTATION,
    MapEntry,
    SchedulingMap,
    SchedulingMapError,
    index_of,
    map_digest,
    parse_map,
)
from reservation_core.domain.pods import map_marks
from reservation_core.domain.pods.cards_in_containers import cuda_devices, node_devices
from reservation_core.domain.pods.reviews import annotations_of, items, members

_ANEW = "Delete the pod and create it again."


class NotAdmittedError(Exception):
    """The pod must not be bound; the text says why, and what to do."""


def admitted_entry(pod: Mapping[str, Any], read_map: Callable[[str], SchedulingMap] = parse_map) -> MapEntry:
    """The entry of the map by which a pod goes to its node. `read_map` is `parse_map`, or a memory before it.

    Raises NotAdmittedError.
    """
    annotations = annotations_of(pod)
    text, digest = annotations.get(MAP_ANNOTATION), annotations.get(map_marks.MAP_DIGEST)
    if text is None:
        raise NotAdmittedError(f"The pod has no annotation {MAP_ANNOTATION}, by which it would be placed. {_ANEW}")
    if digest is None:
        raise NotAdmittedError(
            "The admission webhook did not see this pod: its containers don't know their GPUs. Check whether the"
            f" webhook runs and looks at this namespace. {_ANEW}"
        )
    if map_digest(text) != digest:
        raise NotAdmittedError(f"The map was changed after the pod was made, and its environment was not. {_ANEW}")
    try:
        entry = read_map(text).entry(index_of(identity_of(pod)))
    except SchedulingMapError as problem:
        raise NotAdmittedError(f"{MAP_ANNOTATION}: {problem}. {_ANEW}") from problem
    noted = {
        map_marks.MAP_INDEX: str(entry.index),
        map_marks.MAP_NODE: entry.node,
        map_marks.MAP_DEVICES: entry.cuda_visible_devices,
    }
    for name, value in noted.items():
        if annotations.get(name) != value:
            raise NotAdmittedError(f"The annotation {name} is not what the map says ({value!r}). {_ANEW}")
    _check_environment(members(pod.get("spec")), entry)
    return entry


def _check_environment(spec: Mapping[str, Any], entry: MapEntry) -> None:
    for kind in ("initContainers", "containers"):
        for container in map(members, items(spec.get(kind))):
            said = node_devices(container)
            if not said or any(value != entry.cuda_visible_devices for value in said):
                raise NotAdmittedError(
                    f"Container {container.get('name')} does not have CUDA_VISIBLE_DEVICES="
                    f"{cuda_devices(container, entry.cuda_visible_devices)}, as the map says. {_ANEW}"
                )

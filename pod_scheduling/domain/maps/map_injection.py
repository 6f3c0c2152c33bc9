"""What a scheduling map does to a new pod: its containers are told their cards, and what was read is noted.

Only pods with `spec.schedulerName` ours are looked at. The variables stand first in a container's environment, so that
its other variables may refer to them. Changing twice is changing once: the API server may ask again after others have
changed the pod. Nothing is asked, kept or told anywhere: a dry run is answered as the real thing.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, assert_never

from pod_scheduling.domain.maps.pod_identity import identity_of
from pod_scheduling.domain.maps.scheduling_map import (
    INDEX_ANNOTATION,
    MAP_ANNOTATION,
    MapEntry,
    SchedulingMap,
    SchedulingMapError,
    index_of,
    parse_map,
)
from reservation_core.domain.pods import map_marks
from reservation_core.domain.pods.cards_in_containers import (
    NO_CARDS,
    NVIDIA_VISIBLE_DEVICES,
    cuda_devices,
    node_devices,
)
from reservation_core.domain.pods.enforced_variables import VariableOwner, WantedVariable, set_env
from reservation_core.domain.pods.gpu_resources import is_gpu_resource
from reservation_core.domain.pods.pod_changes import PodChanges
from reservation_core.domain.pods.pod_containers import (
    EPHEMERAL,
    RefusedPodError,
    container_named,
    containers_of,
    shown,
)
from reservation_core.domain.pods.reviews import (
    Denied,
    Operation,
    Patched,
    PodReview,
    Untouched,
    Verdict,
    annotations_of,
    items,
    members,
)

_KEPT = (MAP_ANNOTATION, INDEX_ANNOTATION, *map_marks.MAP_MARKS)
_DEVICE_CLASS = "deviceclass.resource.kubernetes.io/"
_POD_NAME = re.compile(r"[a-z0-9][-.a-z0-9]{0,252}")
_NO_MAP = (
    f"the pod has no annotation {MAP_ANNOTATION}: it will stay Pending. Add the map, or leave the schedulerName out."
)


@dataclass(frozen=True, slots=True)
class InjectionRules:
    """Which pods are ours, what asks for GPUs otherwise, and whether a variable of another value is overwritten.

    `own_cards`: containers are given the map's cards and no others, and not only told which are theirs.
    """

    scheduler_name: str = map_marks.SCHEDULER_NAME
    gpu_resources: tuple[str, ...] = ("nvidia.com/gpu", "amd.com/gpu")
    override_devices: bool = False
    own_cards: bool = False


def injection(
    review: PodReview, rules: InjectionRules, read_map: Callable[[str], SchedulingMap] = parse_map
) -> Verdict:
    """The verdict on a pod. `read_map` is `parse_map`, or a memory before it."""
    try:
        match review.operation:
            case Operation.CREATE:
                return Untouched() if review.subresource else _created(review, rules, read_map)
            case Operation.UPDATE:
                return _updated(review, rules)
            case Operation.DELETE | Operation.CONNECT:
                return Untouched()
            case _:
                assert_never(review.operation)
    except SchedulingMapError as problem:
        return Denied(f"{MAP_ANNOTATION}: {problem}")
    except RefusedPodError as refusal:
        return Denied(str(refusal))


def _created(review: PodReview, rules: InjectionRules, read_map: Callable[[str], SchedulingMap]) -> Verdict:
    pod = _needed(review.pod)
    spec, text = members(pod.get("spec")), annotations_of(pod).get(MAP_ANNOTATION)
    if spec.get("schedulerName") != rules.scheduler_name:
        if text is None:
            return Untouched()
        return Untouched((f"{MAP_ANNOTATION} is not read: spec.schedulerName is not {rules.scheduler_name}",))
    changes = PodChanges(pod)
    if text is None:
        if not changes.remove_annotations(map_marks.MAP_MARKS):
            return Untouched((_NO_MAP,))
        return Patched(changes.pod, changes.operations, warnings=(_NO_MAP,))
    found = read_map(text)
    entry = found.entry(index_of(identity_of(pod)))
    _refuse_gpus(spec, rules)
    _refuse_other_node(spec, entry)
    warnings, by = list[str](), _variable_owner(rules)
    for path, container in containers_of(spec, "initContainers", "containers"):
        warnings += set_env(changes, path, container, _variables(container, entry.cuda_visible_devices, rules), by)
    changes.annotate(
        {
            map_marks.MAP_INDEX: str(entry.index),
            map_marks.MAP_NODE: entry.node,
            map_marks.MAP_DEVICES: entry.cuda_visible_devices,
            map_marks.MAP_DIGEST: found.digest,
            map_marks.MAP_OWNER: review.requester.username,
        }
    )
    if not changes.operations:
        return Untouched(tuple(warnings))
    told = f"Injecting {_written(rules)}={entry.cuda_visible_devices} for pod {_named(pod)} (index {entry.index})"
    return Patched(changes.pod, changes.operations, (told,), tuple(warnings))


def _updated(review: PodReview, rules: InjectionRules) -> Verdict:
    """What was read stays: the environment can't follow a map that is edited."""
    pod, old = _needed(review.pod), _needed(review.old_pod)
    if members(old.get("spec")).get("schedulerName") != rules.scheduler_name:
        return Untouched()
    had, has = annotations_of(old), annotations_of(pod)
    for name in _KEPT:
        if had.get(name) != has.get(name):
            raise RefusedPodError(
                f"the annotation {name} of a pod can't be changed: its containers' environment can't follow."
                " Delete the pod and create it again."
            )
    if review.subresource != "ephemeralcontainers" or MAP_ANNOTATION not in had:
        return Untouched()
    return _debugged(pod, old, rules)


def _debugged(pod: Mapping[str, Any], old: Mapping[str, Any], rules: InjectionRules) -> Verdict:
    """New ephemeral containers see what the pod's own containers see. Earlier ones can't be changed any more."""
    spec, old_spec = members(pod.get("spec")), members(old.get("spec"))
    devices = _devices_of(old_spec)
    earlier = {str(container.get("name")) for _, container in containers_of(old_spec, EPHEMERAL)}
    changes, warnings, names, by = PodChanges(pod), list[str](), list[str](), _variable_owner(rules)
    for path, container in containers_of(spec, EPHEMERAL):
        if str(container.get("name")) not in earlier:
            warnings += set_env(changes, path, container, _variables(container, devices, rules), by)
            names.append(container_named(path, container))
    if not changes.operations:
        return Untouched(tuple(warnings))
    told = f"Injecting {_written(rules)}={devices} for pod {_named(pod)} ({', '.join(names)})"
    return Patched(changes.pod, changes.operations, (told,), tuple(warnings))


def _devices_of(spec: Mapping[str, Any]) -> str:
    """The cards that a pod was made with: those of its containers' environment, which nobody could change since."""
    said = {devices or "" for _, container in containers_of(spec, "containers") for devices in node_devices(container)}
    if len(said) != 1:
        raise RefusedPodError(
            "the pod's containers don't have one CUDA_VISIBLE_DEVICES: its map was never read. Create the pod again."
        )
    return said.pop()


def _variables(container: Mapping[str, Any], devices: str, rules: InjectionRules) -> tuple[WantedVariable, ...]:
    order = WantedVariable(map_marks.CUDA_DEVICE_ORDER, map_marks.DEVICE_ORDER)
    if not rules.own_cards:
        return WantedVariable(map_marks.CUDA_VISIBLE_DEVICES, cuda_devices(container, devices)), order
    given = WantedVariable(NVIDIA_VISIBLE_DEVICES, devices or NO_CARDS)
    told = cuda_devices({**container, "env": [given.as_json]}, devices)
    # The path without `own_cards` may have been asked before, and have told the node's numbers.
    return given, WantedVariable(map_marks.CUDA_VISIBLE_DEVICES, told, instead_of=devices), order


def _written(rules: InjectionRules) -> str:
    return NVIDIA_VISIBLE_DEVICES if rules.own_cards else map_marks.CUDA_VISIBLE_DEVICES


def _variable_owner(rules: InjectionRules) -> VariableOwner:
    return VariableOwner("the map", "change the map", override=rules.override_devices)


def _refuse_gpus(spec: Mapping[str, Any], rules: InjectionRules) -> None:
    """A map's pod sees its cards by its environment; GPUs that it requests would be others."""
    if items(spec.get("resourceClaims")):
        raise RefusedPodError(
            f"a pod with {MAP_ANNOTATION} can't have resourceClaims: the map says its GPUs. Leave them out."
        )
    who: list[tuple[str, Mapping[str, Any]]] = [("the pod", spec)]
    who += [
        (container_named(path, container), container)
        for path, container in containers_of(spec, "initContainers", "containers")
    ]
    for name, holder in who:
        resources = members(holder.get("resources"))
        asked = [*members(resources.get("limits")).items(), *members(resources.get("requests")).items()]
        for resource, amount in asked:
            of_gpus = is_gpu_resource(resource, rules.gpu_resources) or resource.startswith(_DEVICE_CLASS)
            if of_gpus and str(amount) != "0":
                raise RefusedPodError(
                    f"{name} requests {resource}, and {MAP_ANNOTATION} says its GPUs already: it would hold others"
                    " than it sees. Leave one of the two out."
                )
        if items(resources.get("claims")):
            raise RefusedPodError(f"{name} has resource claims, and {MAP_ANNOTATION} says its GPUs. Leave one out.")


def _refuse_other_node(spec: Mapping[str, Any], entry: MapEntry) -> None:
    preset = spec.get("nodeName")
    if preset and preset != entry.node:
        raise RefusedPodError(
            f"spec.nodeName is {shown(preset)}, and the map says {entry.node!r} for index {entry.index}. Leave"
            " nodeName away: the scheduler sets it."
        )


def _needed(pod: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if pod is None:
        raise RefusedPodError("the review holds no pod")
    return pod


def _named(pod: Mapping[str, Any]) -> str:
    """The pod's name for a line of the log: names are checked only after webhooks were asked."""
    metadata = members(pod.get("metadata"))
    name = str(metadata.get("name") or metadata.get("generateName") or "")
    return name if _POD_NAME.fullmatch(name) else shown(name)

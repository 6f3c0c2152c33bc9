"""The identity of a pod, read from its plain JSON as the API server sends it."""

from collections.abc import Mapping
from typing import Any

from pod_scheduling.domain.maps.scheduling_map import Controller, PodIdentity
from reservation_core.domain.pods.reviews import annotations_of, items, labels_of, members


def identity_of(pod: Mapping[str, Any]) -> PodIdentity:
    """What of a pod says its index. A name that the API server will choose is still empty as the pod is reviewed."""
    metadata = members(pod.get("metadata"))
    name, generated = metadata.get("name"), metadata.get("generateName")
    return PodIdentity(
        name=name if isinstance(name, str) else "",
        controller=_controller(metadata),
        generated=not name or bool(generated),
        annotations=annotations_of(pod),
        labels=labels_of(pod),
    )


def _controller(metadata: Mapping[str, Any]) -> Controller:
    for owner in map(members, items(metadata.get("ownerReferences"))):
        if owner.get("controller") is True:
            of_apps = str(owner.get("apiVersion", "")).startswith("apps/")
            return Controller.STATEFUL_SET if of_apps and owner.get("kind") == "StatefulSet" else Controller.OTHER
    return Controller.NONE

"""Ways to cards that no request says: a pod of an enforced namespace that takes one would use more than was counted.

What a container's own environment says comes after what a device plugin sets, so it counts even on a pod that asked for
cards. What images bring, what `envFrom` reads and what privileged containers can do is not seen in a pod.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pod_scheduling.domain.enforcement.pod_gpus import GpuNeed
from reservation_core.domain.pods.map_marks import MAP_DEVICES
from reservation_core.domain.pods.reviews import Operation, PodReview, annotations_of, items, members

_VARIABLES = ("NVIDIA_VISIBLE_DEVICES", "AMD_VISIBLE_DEVICES")
_NO_CARDS = frozenset({"", "void", "none"})
_CDI = "cdi.k8s.io/"
_DEVICE_CLASS = "deviceclass.resource.kubernetes.io/"
_EPHEMERAL = "ephemeralContainers"


def uncounted_gpus(review: PodReview, need: GpuNeed, *, allow_claims: bool, shares: str | None = None) -> str | None:
    """Why the pod must not be, by what it would see uncounted; None where there is nothing.

    Looked at when a pod is made, and debugging containers when they are added. The containers of a pod with cards by
    a scheduling map may be given these, as its webhook has read them. `shares` is the resource by which
    parts of cards are asked for, None where that is let by.
    """
    if review.pod is None:
        return None
    spec = members(review.pod.get("spec"))
    match review.operation:
        case Operation.CREATE if not review.subresource:
            containers = [
                container for kind in ("initContainers", "containers", _EPHEMERAL) for container in _named(spec, kind)
            ]
            if (reason := _by_devices(review.pod, spec, allow_claims=allow_claims)) is not None:
                return reason
            if shares is not None and any(_asks_for(container, shares) for container in containers):
                return (
                    f"the pod asks for {shares}, and shares of GPUs can't be compared with a booking. Ask for whole"
                    " GPUs with resources.limits"
                )
        case Operation.UPDATE if review.subresource == "ephemeralcontainers":
            before = {
                str(container.get("name"))
                for container in _named(members(members(review.old_pod).get("spec")), _EPHEMERAL)
            }
            containers = [
                container for container in _named(spec, _EPHEMERAL) if str(container.get("name")) not in before
            ]
        case _:
            return None
    counted = {*_NO_CARDS, annotations_of(review.pod).get(MAP_DEVICES)} if need.by_map else _NO_CARDS
    for container in containers:
        for variable in map(members, items(container.get("env"))):
            name = variable.get("name")
            if name in _VARIABLES and (variable.get("valueFrom") or str(variable.get("value") or "") not in counted):
                instead = "the webhook writes the map's GPUs" if need.by_map else "ask for GPUs with resources.limits"
                return (
                    f"container {container.get('name')} sets {name}: it would see GPUs that nobody has counted. Remove"
                    f" the variable; {instead}"
                )
    return None


def _by_devices(pod: Mapping[str, Any], spec: Mapping[str, Any], *, allow_claims: bool) -> str | None:
    for name in annotations_of(pod):
        if name.startswith(_CDI):
            return f"the annotation {name} asks for devices that nobody has counted. Remove it"
    if allow_claims:
        return None
    if items(spec.get("resourceClaims")):
        return "the pod has resource claims, which can't be compared with a booking. Ask for GPUs with resources.limits"
    for kind in ("initContainers", "containers"):
        for container in _named(spec, kind):
            asked = members(container.get("resources"))
            for name in (*members(asked.get("requests")), *members(asked.get("limits"))):
                if name.startswith(_DEVICE_CLASS):
                    return f"the pod asks for {name}, which can't be compared with a booking"
    return None


def _asks_for(container: Mapping[str, Any], resource: str) -> bool:
    asked = members(container.get("resources"))
    amounts = [members(asked.get(part)).get(resource) for part in ("requests", "limits")]
    return any(amount is not None and str(amount) != "0" for amount in amounts)


def _named(spec: Mapping[str, Any], kind: str) -> Iterator[Mapping[str, Any]]:
    yield from map(members, items(spec.get(kind)))

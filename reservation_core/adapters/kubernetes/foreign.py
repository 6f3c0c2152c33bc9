"""Who uses GPUs of our nodes without having asked us."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reservation_core.adapters.kubernetes.attaching import GpuAttach
from reservation_core.adapters.kubernetes.marks import as_list, as_mapping, pod_name_of
from reservation_core.adapters.kubernetes.pod_statuses import is_finished
from reservation_core.adapters.kubernetes.quantities import read_quantity
from reservation_core.domain.model import ForeignPod

_MOST = 1024


@dataclass(frozen=True, slots=True)
class ForeignRules:
    """Which pods are ours (those of `namespace` that carry our marks) and by which resources the others are known."""

    namespace: str
    attach: GpuAttach = GpuAttach.ENV
    resource_names: Sequence[str] = ("nvidia.com/gpu", "amd.com/gpu")


def read_foreign(pods: Iterable[Mapping[str, Any]], rules: ForeignRules, nodes: Collection[str]) -> list[ForeignPod]:
    """Pods of others on `nodes` (the names of ours) that ask for GPUs and may have processes. Their cards are unknown.

    Our marks on a pod of another namespace make it none of ours.
    """
    foreign = []
    for pod in pods:
        metadata = as_mapping(pod.get("metadata"))
        namespace, name = metadata.get("namespace"), metadata.get("name")
        node = as_mapping(pod.get("spec")).get("nodeName")
        if not isinstance(node, str) or node not in nodes or is_finished(pod):
            continue
        if namespace == rules.namespace and pod_name_of(pod) is not None:
            continue
        count = gpus_asked_for(pod, rules.resource_names)
        if count > 0:
            counted = rules.attach is GpuAttach.DEVICE_PLUGIN
            foreign.append(ForeignPod(node, f"{namespace}/{name}", count, None, counted=counted))
    return foreign


def gpus_asked_for(pod: Mapping[str, Any], resource_names: Sequence[str]) -> int:
    """How many GPUs a pod's node keeps for it.

    Init containers run before the others, one after the other, so the larger need counts; those that go on beside the
    others (restartPolicy Always) add to what comes after them. Of a resource claim it is not known what it names:
    each counts as one card.
    """
    spec = as_mapping(pod.get("spec"))
    beside, first = 0, 0
    for container in map(as_mapping, as_list(spec.get("initContainers"))):
        asked = _asked_for(container, resource_names)
        if container.get("restartPolicy") == "Always":
            beside += asked
            first = max(first, beside)
        else:
            first = max(first, beside + asked)
    together = sum(
        _asked_for(container, resource_names) for container in map(as_mapping, as_list(spec.get("containers")))
    )
    return min(max(first, beside + together) + len(as_list(spec.get("resourceClaims"))), _MOST)


def _asked_for(container: Mapping[str, Any], resource_names: Sequence[str]) -> int:
    resources = as_mapping(container.get("resources"))
    return sum(
        max(_pieces(as_mapping(resources.get(part)).get(name)) for part in ("requests", "limits"))
        for name in resource_names
    )


def _pieces(amount: object) -> int:
    if amount is None:
        return 0
    try:
        return min(int(read_quantity(amount)), _MOST)
    except ValueError:
        return 1  # it asks for some, and the API would not have taken nonsense

"""Where a pod of ours is that does not say what it holds."""

from collections.abc import Mapping, Sequence
from typing import Any

from reservation_core.adapters.kubernetes.api_server.plain_json import as_list, as_mapping
from reservation_core.adapters.kubernetes.jobs.foreign_pods import gpus_asked_for
from reservation_core.adapters.kubernetes.pods.gpu_attaching import GpuAttach
from reservation_core.domain.model import PodPlace


def place_of(pod: Mapping[str, Any], attach: GpuAttach, resource_names: Sequence[str]) -> PodPlace | None:
    """The node that a pod is on or pinned to, and how many cards the kubelet keeps for it there.

    None for a pod that is neither: it can't run. A number only where all pods get their cards from the kubelet; else
    nobody but the pod knows which it uses.
    """
    spec = as_mapping(pod.get("spec"))
    node = spec.get("nodeName") or _pinned_to(spec)
    if not isinstance(node, str):
        return None
    counted = gpus_asked_for(pod, resource_names) if attach is GpuAttach.DEVICE_PLUGIN else 0
    return PodPlace(node, counted or None)


def _pinned_to(spec: Mapping[str, Any]) -> object:
    affinity = as_mapping(as_mapping(spec.get("affinity")).get("nodeAffinity"))
    required = as_mapping(affinity.get("requiredDuringSchedulingIgnoredDuringExecution"))
    for term in map(as_mapping, as_list(required.get("nodeSelectorTerms"))):
        for field in map(as_mapping, as_list(term.get("matchFields"))):
            values = as_list(field.get("values"))
            if (field.get("key"), field.get("operator"), len(values)) == ("metadata.name", "In", 1):
                return values[0]
    return None

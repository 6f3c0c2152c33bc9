"""The node of a pod of ours whose annotations do not say which GPUs it has."""

from collections.abc import Mapping, Sequence
from typing import Any

from reservation_core.adapters.kubernetes.api_server.plain_json import as_list, as_mapping
from reservation_core.adapters.kubernetes.jobs.foreign_pods import requested_gpus
from reservation_core.adapters.kubernetes.pods.gpu_attaching import GpuAttach
from reservation_core.domain.model import PodPlace


def place_of(pod: Mapping[str, Any], attach: GpuAttach, resource_names: Sequence[str]) -> PodPlace | None:
    """The node that a pod is on or pinned to, and the GPUs that it requests there.

    None for a pod without a node: it can't run. The number is known with `device-plugin` alone.
    """
    spec = as_mapping(pod.get("spec"))
    node = spec.get("nodeName") or _pinned_to(spec)
    if not isinstance(node, str):
        return None
    counted = requested_gpus(pod, resource_names) if attach is GpuAttach.DEVICE_PLUGIN else 0
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

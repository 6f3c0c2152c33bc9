"""Whether a pod prefers some feasible nodes: the scheduler must then see all of them to score its preferences."""

from collections.abc import Mapping
from typing import Any

from reservation_core.adapters.kubernetes.api_server.plain_json import as_list, as_mapping

_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_KINDS = ("nodeAffinity", "podAffinity", "podAntiAffinity")


def has_preferences(spec: Mapping[str, Any]) -> bool:
    """Whether a pod's `spec` has preferred affinities or a soft topology spread."""
    affinity = spec.get("affinity")
    if affinity and any(as_mapping(as_mapping(affinity).get(kind)).get(_PREFERRED) for kind in _KINDS):
        return True
    spreads = spec.get("topologySpreadConstraints")
    return bool(spreads) and any(
        as_mapping(spread).get("whenUnsatisfiable") == "ScheduleAnyway" for spread in as_list(spreads)
    )

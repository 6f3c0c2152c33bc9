"""ResourceClaims (DRA): how many GPUs a pod's claim is for, and which, in the shapes from v1beta1 to v1.

What a claim was given says more than what it asked for: once it is allocated only its devices count, by their driver.
Before that no container of its pod can run, and what counts is the device class that it names.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from reservation_core.adapters.kubernetes.api_server.plain_json import as_list, as_mapping

MOST_DEVICES = 1024

ClaimKey = tuple[str, str]
"""A claim's namespace and name."""

DeviceKey = tuple[str, str, str]
"""A device's driver, pool and name: by these a claim and a ResourceSlice mean the same one."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The GPUs of one claim: those it was given, and how many it still asks for."""

    key: ClaimKey
    devices: tuple[DeviceKey, ...]
    asked_for: int = 0


def read_claim(claim: Mapping[str, Any], gpu_names: Collection[str]) -> Claim | None:
    """A claim's GPUs; `gpu_names` are device classes and drivers. None for what can't be read."""
    metadata = as_mapping(claim.get("metadata"))
    key = (str(metadata.get("namespace")), str(metadata.get("name")))
    allocation = as_mapping(claim.get("status")).get("allocation")
    if isinstance(allocation, Mapping):
        given = as_list(as_mapping(allocation.get("devices")).get("results"))
        return Claim(key, tuple(dict.fromkeys(_given(map(as_mapping, given), gpu_names))))
    asked = as_mapping(claim.get("spec")).get("devices")
    if not isinstance(asked, Mapping):
        return None
    wanted = sum(_asked_for(as_mapping(request), gpu_names) for request in as_list(asked.get("requests")))
    return Claim(key, (), min(wanted, MOST_DEVICES))


def _given(results: Iterator[Mapping[str, Any]], gpu_names: Collection[str]) -> Iterator[DeviceKey]:
    for result in results:
        driver, pool, device = (result.get(part) for part in ("driver", "pool", "device"))
        # A claim with admin access looks after a device and leaves it to others.
        if driver in gpu_names and result.get("adminAccess") is not True:
            yield str(driver), str(pool), str(device)


def _asked_for(request: Mapping[str, Any], gpu_names: Collection[str]) -> int:
    """One request's GPUs; of alternatives, those of the largest."""
    alternatives = [as_mapping(alternative) for alternative in as_list(request.get("firstAvailable"))]
    alternatives = alternatives or [as_mapping(request.get("exactly")) or request]
    return max(
        _count(alternative) if alternative.get("deviceClassName") in gpu_names else 0 for alternative in alternatives
    )


def _count(request: Mapping[str, Any]) -> int:
    if request.get("adminAccess") is True:
        return 0
    count = request.get("count")
    return count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else 1

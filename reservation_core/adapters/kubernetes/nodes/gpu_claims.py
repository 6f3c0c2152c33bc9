"""GPUs of ResourceClaims (DRA), in the versions v1beta1 to v1.

An allocated claim counts by its devices and their driver. Before allocation its pod can't run, and the claim counts by
the device class that it requests.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from reservation_core.adapters.kubernetes.api_server.plain_json import as_list, as_mapping

MOST_DEVICES = 1024

ClaimKey = tuple[str, str]
"""A claim's namespace and name."""

DeviceKey = tuple[str, str, str]
"""A device's driver, pool and name, the same in a claim and in a ResourceSlice."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The GPUs of one claim: allocated devices, or the requested number before allocation."""

    key: ClaimKey
    devices: tuple[DeviceKey, ...]
    asked_for: int = 0


def read_claim(claim: Mapping[str, Any], gpu_names: Collection[str]) -> Claim | None:
    """A claim's GPUs; `gpu_names` are device classes and drivers. None for an unreadable claim."""
    metadata = as_mapping(claim.get("metadata"))
    key = (str(metadata.get("namespace")), str(metadata.get("name")))
    allocation = as_mapping(claim.get("status")).get("allocation")
    if isinstance(allocation, Mapping):
        results = as_list(as_mapping(allocation.get("devices")).get("results"))
        return Claim(key, tuple(dict.fromkeys(_allocated_devices(map(as_mapping, results), gpu_names))))
    devices = as_mapping(claim.get("spec")).get("devices")
    if not isinstance(devices, Mapping):
        return None
    count = sum(_asked_for(as_mapping(request), gpu_names) for request in as_list(devices.get("requests")))
    return Claim(key, (), min(count, MOST_DEVICES))


def _allocated_devices(results: Iterator[Mapping[str, Any]], gpu_names: Collection[str]) -> Iterator[DeviceKey]:
    for result in results:
        driver, pool, device = (result.get(part) for part in ("driver", "pool", "device"))
        # Admin access monitors a device without using it up.
        if driver in gpu_names and result.get("adminAccess") is not True:
            yield str(driver), str(pool), str(device)


def _asked_for(request: Mapping[str, Any], gpu_names: Collection[str]) -> int:
    """The GPUs of a request; the largest number of its alternatives."""
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

"""A pod's resource requests, summed up as kube-scheduler does.

The maximum over time counts: all containers together, or an init container together with the sidecars (`restartPolicy:
Always`) before it. Requests of the pod (`spec.resources`) replace the sum, and its overhead is added. A container that
is being resized counts with the larger of its requested and its allocated resources. Source: Kubernetes' resource
helpers for pods.
"""

from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from typing import Any

from reservation_core.adapters.kubernetes.api_server.plain_json import as_list, as_mapping
from reservation_core.adapters.kubernetes.pods.quantities import read_quantity

_MOST = Decimal(2**62)
_OF_PODS = ("cpu", "memory")
_LONGEST = 64
"""Characters; every amount is shorter."""


def read_amounts(resources: object) -> dict[str, int]:
    """Amounts by resource: thousandths of cores for `cpu`, else bytes and pieces, rounded up; without invalid ones."""
    amounts = {}
    for name, text in as_mapping(resources).items():
        if isinstance(text, str | int) and (isinstance(text, int) or len(text) <= _LONGEST):
            amount = _amount(text, 1000 if name == "cpu" else 1)
            if amount is not None:
                amounts[str(name)] = amount
    return amounts


@lru_cache(maxsize=4096, typed=True)
def _amount(text: str | int, times: int) -> int | None:
    """A multiple of an amount, None for an invalid one; cached, as few amounts occur again and again."""
    try:
        amount = read_quantity(text) * times
    except ValueError:
        return None
    return int(min(amount, _MOST).to_integral_value(ROUND_CEILING))


def pod_requests(spec: Mapping[str, Any], status: Mapping[str, Any] | None = None) -> dict[str, int]:
    """A pod's requests, including `pods: 1`. `status` is its status, for a pod on a node."""
    allocated = _allocated(status or {})
    running = _sum(
        _most(_requests(container), allocated.get(str(container.get("name")), {}))
        for container in map(as_mapping, as_list(spec.get("containers")))
    )
    sidecars: dict[str, int] = {}
    most: dict[str, int] = {}
    for container in map(as_mapping, as_list(spec.get("initContainers"))):
        requested = _most(_requests(container), allocated.get(str(container.get("name")), {}))
        if container.get("restartPolicy") == "Always":
            sidecars = _sum((sidecars, requested))
            most = _most(most, sidecars)
        else:
            most = _most(most, _sum((sidecars, requested)))
    total = _most(_sum((running, sidecars)), most)
    whole = _requests(spec)
    total.update({name: whole[name] for name in whole if name in _OF_PODS or name.startswith("hugepages-")})
    total = _sum((total, read_amounts(spec.get("overhead"))))
    return {name: amount for name, amount in total.items() if amount} | {"pods": 1}


def host_ports(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """The host ports of a pod, as `TCP/0.0.0.0/80`."""
    ports = []
    for container in map(as_mapping, [*as_list(spec.get("containers")), *as_list(spec.get("initContainers"))]):
        for port in map(as_mapping, as_list(container.get("ports"))):
            number = port.get("hostPort")
            if isinstance(number, int) and number > 0:
                address = port.get("hostIP") or "0.0.0.0"  # noqa: S104 -- compared, not bound
                ports.append(f"{port.get('protocol') or 'TCP'}/{address}/{number}")
    return tuple(ports)


def _allocated(status: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """The resources that every container has on its node, by its name."""
    allocated = {}
    for part in ("containerStatuses", "initContainerStatuses"):
        for container_status in map(as_mapping, as_list(status.get(part))):
            actual = read_amounts(as_mapping(container_status.get("resources")).get("requests"))
            granted = read_amounts(container_status.get("allocatedResources"))
            allocated[str(container_status.get("name"))] = _most(actual, granted)
    return allocated


def _requests(holder: Mapping[str, Any]) -> dict[str, int]:
    """Requests; limits for resources without a request."""
    resources = as_mapping(holder.get("resources"))
    return {**read_amounts(resources.get("limits")), **read_amounts(resources.get("requests"))}


def _sum(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total


def _most(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {*one, *other}}

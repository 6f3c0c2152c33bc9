"""What a pod asks of its node, as the scheduler of Kubernetes adds it up.

The most that is needed at any time: all containers together, or an init container while it runs beside the init
containers that go on (`restartPolicy: Always`). What the pod as a whole asks for (`spec.resources`) counts instead of
the sum, and its overhead on top. A container that is being resized counts with the most of what it is asked to have
and what it still has. Source: Kubernetes' resource helpers for pods.
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


def read_amounts(said: object) -> dict[str, int]:
    """Amounts by resource: thousandths of cores for `cpu`, else bytes and pieces, rounded up. Nonsense is left out."""
    amounts = {}
    for name, text in as_mapping(said).items():
        if isinstance(text, str | int) and (isinstance(text, int) or len(text) <= _LONGEST):
            amount = _amount(text, 1000 if name == "cpu" else 1)
            if amount is not None:
                amounts[str(name)] = amount
    return amounts


@lru_cache(maxsize=4096, typed=True)
def _amount(text: str | int, times: int) -> int | None:
    """So many times an amount, None for what is not one. The same few are read again and again."""
    try:
        amount = read_quantity(text) * times
    except ValueError:
        return None
    return int(min(amount, _MOST).to_integral_value(ROUND_CEILING))


def pod_requests(spec: Mapping[str, Any], status: Mapping[str, Any] | None = None) -> dict[str, int]:
    """What a pod takes, `pods: 1` included. `status` is its status, for one that is on a node."""
    has = _allocated(status or {})
    running = _sum(
        _most(_requests(container), has.get(str(container.get("name")), {}))
        for container in map(as_mapping, as_list(spec.get("containers")))
    )
    beside: dict[str, int] = {}
    most: dict[str, int] = {}
    for container in map(as_mapping, as_list(spec.get("initContainers"))):
        asked = _most(_requests(container), has.get(str(container.get("name")), {}))
        if container.get("restartPolicy") == "Always":
            beside = _sum((beside, asked))
            most = _most(most, beside)
        else:
            most = _most(most, _sum((beside, asked)))
    total = _most(_sum((running, beside)), most)
    whole = _requests(spec)
    total.update({name: whole[name] for name in whole if name in _OF_PODS or name.startswith("hugepages-")})
    total = _sum((total, read_amounts(spec.get("overhead"))))
    return {name: amount for name, amount in total.items() if amount} | {"pods": 1}


def host_ports(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """The ports of its node that a pod takes, as `TCP/0.0.0.0/80`."""
    found = []
    for container in map(as_mapping, [*as_list(spec.get("containers")), *as_list(spec.get("initContainers"))]):
        for port in map(as_mapping, as_list(container.get("ports"))):
            number = port.get("hostPort")
            if isinstance(number, int) and number > 0:
                address = port.get("hostIP") or "0.0.0.0"  # noqa: S104 -- compared, not bound
                found.append(f"{port.get('protocol') or 'TCP'}/{address}/{number}")
    return tuple(found)


def _allocated(status: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """What each container has on its node, by its name."""
    found = {}
    for part in ("containerStatuses", "initContainerStatuses"):
        for container_status in map(as_mapping, as_list(status.get(part))):
            actual = read_amounts(as_mapping(container_status.get("resources")).get("requests"))
            found[str(container_status.get("name"))] = _most(
                actual, read_amounts(container_status.get("allocatedResources"))
            )
    return found


def _requests(holder: Mapping[str, Any]) -> dict[str, int]:
    """Requests, and limits where nothing is requested of that resource."""
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

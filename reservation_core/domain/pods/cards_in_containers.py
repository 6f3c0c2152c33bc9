"""How a container numbers its GPUs: like its node if it has all of them, from 0 if it was given only some.

NVIDIA's container runtime gives a container only the GPUs that NVIDIA_VISIBLE_DEVICES names, numbered from 0 in the
order of the node; CUDA_VISIBLE_DEVICES uses these numbers. UUIDs mean the same GPU in both. A privileged container has
all devices, whatever the variable says.
"""

from collections.abc import Mapping
from typing import Any, Final

from reservation_core.domain.pods.map_marks import CUDA_VISIBLE_DEVICES
from reservation_core.domain.pods.reviews import items, members

NVIDIA_VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
NO_CARDS: Final = "void"
"""The value with which the runtime gives no GPU, whatever the image says."""


def renumbered_devices(devices: str) -> str:
    """The CUDA_VISIBLE_DEVICES of a container that was given only these GPUs: `3,1` becomes `1,0`; UUIDs stay."""
    named = devices.split(",")
    if not _are_indices(named):
        return devices
    numbers = {gpu: str(number) for number, gpu in enumerate(sorted({int(index) for index in named}))}
    return ",".join(numbers[int(index)] for index in named)


def cuda_devices(container: Mapping[str, Any], devices: str) -> str:
    """The CUDA_VISIBLE_DEVICES with which a container uses the node's GPUs `devices`."""
    given = _values_of(container, NVIDIA_VISIBLE_DEVICES)
    only_these = bool(devices) and bool(given) and all(value == devices for value in given)
    return renumbered_devices(devices) if only_these and not _is_privileged(container) else devices


def node_devices(container: Mapping[str, Any]) -> list[str | None]:
    """The node's GPUs that a container's CUDA_VISIBLE_DEVICES means, for each time it is set.

    None for a reference, which the pod does not resolve. Numbers beyond the container's GPUs are left out.
    """
    given = [] if _is_privileged(container) else _values_of(container, NVIDIA_VISIBLE_DEVICES)[-1:]
    visible = given[0].split(",") if given and given[0] is not None else []
    values = _values_of(container, CUDA_VISIBLE_DEVICES)
    if not _are_indices(visible):
        return values
    indices = sorted({int(index) for index in visible})
    return [None if value is None else _renumber(value, indices) for value in values]


def _renumber(value: str, indices: list[int]) -> str:
    numbers = value.split(",")
    if not _are_indices(numbers):
        return value
    return ",".join(str(indices[int(number)]) for number in numbers if int(number) < len(indices))


def _values_of(container: Mapping[str, Any], name: str) -> list[str | None]:
    return [
        None if variable.get("valueFrom") is not None else str(variable.get("value") or "")
        for variable in map(members, items(container.get("env")))
        if variable.get("name") == name
    ]


def _are_indices(named: list[str]) -> bool:
    return bool(named) and all(index.isascii() and index.isdigit() and len(index) <= 4 for index in named)


def _is_privileged(container: Mapping[str, Any]) -> bool:
    return members(container.get("securityContext")).get("privileged") is True

"""How a container counts its cards: as its node does where it has all of them, anew where it was given only some.

NVIDIA's container runtime gives a container the cards that NVIDIA_VISIBLE_DEVICES names and no others; inside they
have the numbers from 0 on, in the order of the node's. CUDA_VISIBLE_DEVICES speaks of these numbers. UUIDs mean the
same card in both. A privileged container has all devices whatever the variable says.
"""

from collections.abc import Mapping
from typing import Any, Final

from reservation_core.domain.pods.map_marks import CUDA_VISIBLE_DEVICES
from reservation_core.domain.pods.reviews import items, members

NVIDIA_VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
NO_CARDS: Final = "void"
"""Its value where the runtime is to give no GPU, whatever the image says."""


def counted_anew(devices: str) -> str:
    """What CUDA_VISIBLE_DEVICES has to say in a container that was given just these cards, in their order.

    `3,1` is `1,0`; UUIDs stay.
    """
    named = devices.split(",")
    if not _are_indices(named):
        return devices
    numbers = {card: str(number) for number, card in enumerate(sorted({int(index) for index in named}))}
    return ",".join(numbers[int(index)] for index in named)


def cuda_devices(container: Mapping[str, Any], devices: str) -> str:
    """What CUDA_VISIBLE_DEVICES of a container has to say so that it is the node's cards `devices`."""
    given = _said(container, NVIDIA_VISIBLE_DEVICES)
    only_these = bool(devices) and bool(given) and all(devices_given == devices for devices_given in given)
    return counted_anew(devices) if only_these and not _privileged(container) else devices


def node_devices(container: Mapping[str, Any]) -> list[str | None]:
    """The node's cards that a container's CUDA_VISIBLE_DEVICES means, for each time that it stands there.

    None where a reference says it, which can't be read from the pod. Numbers beyond what the container was given are no
    card.
    """
    given = [] if _privileged(container) else _said(container, NVIDIA_VISIBLE_DEVICES)[-1:]
    cards = given[0].split(",") if given and given[0] is not None else []
    said = _said(container, CUDA_VISIBLE_DEVICES)
    if not _are_indices(cards):
        return said
    there = sorted({int(card) for card in cards})
    return [None if devices is None else _of_node(devices, there) for devices in said]


def _of_node(said: str, there: list[int]) -> str:
    numbers = said.split(",")
    if not _are_indices(numbers):
        return said
    return ",".join(str(there[int(number)]) for number in numbers if int(number) < len(there))


def _said(container: Mapping[str, Any], name: str) -> list[str | None]:
    return [
        None if variable.get("valueFrom") is not None else str(variable.get("value") or "")
        for variable in map(members, items(container.get("env")))
        if variable.get("name") == name
    ]


def _are_indices(named: list[str]) -> bool:
    return bool(named) and all(index.isascii() and index.isdigit() and len(index) <= 4 for index in named)


def _privileged(container: Mapping[str, Any]) -> bool:
    return members(container.get("securityContext")).get("privileged") is True

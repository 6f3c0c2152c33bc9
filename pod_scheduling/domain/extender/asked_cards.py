"""Cards that a pod asks of its node: whole ones of a device plugin, and shares of cards, container by container.

Amounts count as the kubelet counts them: containers and sidecars (init containers with `restartPolicy: Always`) have
theirs at the same time; every other init container has its own beside the sidecars that stand before it, earlier.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pod_scheduling.domain.placement.tasks import WHOLE
from reservation_core.domain.pods.gpu_resources import is_gpu_resource
from reservation_core.domain.pods.reviews import items, members

MOST_CARDS = 1024
"""In one container, and in one pod; who asks for more is counted so, and fits nowhere."""

CORE_OF_A_CARD = 100
"""Units of the share resource (`tencent.com/vcuda-core`) in one card."""

_MOST_MEMORY = 2**31
_PIECES = re.compile(r"([0-9]{1,18})(?:[eE]([0-9]{1,2})|([kMGTPE]|[KMGTPE]i)?)")
_TIMES = {"": 1, "k": 1000} | {
    name + "i" * (base == 1024): base**power for base in (1000, 1024) for power, name in enumerate("KMGTPE", 1)
}
_MILLI = WHOLE // CORE_OF_A_CARD


@dataclass(frozen=True, slots=True)
class CardResources:
    """Resource names: whole cards of a device plugin, shares in hundredths of a card, and units of memory."""

    whole: tuple[str, ...] = ("nvidia.com/gpu", "amd.com/gpu")
    share: str = "tencent.com/vcuda-core"
    memory: str = "tencent.com/vcuda-memory"


@dataclass(frozen=True, slots=True)
class Part:
    """What one container asks for: `cards` of which `milli` thousandths each, and on a share's card `memory` units.

    `container` is its place among `spec.containers`, None for init containers. Whole cards have all of their memory.
    """

    container: int | None
    cards: int
    milli: int = WHOLE
    memory: int = 0


@dataclass(frozen=True, slots=True)
class Earlier:
    """What an init container asks for that ends before the others begin, beside so many of the sidecars."""

    part: Part
    sidecars: int


@dataclass(frozen=True, slots=True)
class AskedCards:
    """All that a pod asks for.

    `plugin`: whole cards that the kubelet's device plugin chooses. `parts`: what runs at the same time, sidecars first,
    `sidecars` of them. `milli`: thousandths of cards all in all, at the time of the most. `refused`: why nobody gets
    that; who is on a node all the same counts with what it asks for, rounded up.
    """

    plugin: int = 0
    parts: tuple[Part, ...] = ()
    sidecars: int = 0
    earlier: tuple[Earlier, ...] = ()
    milli: int = 0
    refused: str | None = None

    @property
    def none(self) -> bool:
        """Whether it asks for nothing."""
        return self.milli == 0 and self.refused is None

    @property
    def shares(self) -> bool:
        """Whether it asks for shares, whose card its scheduler chooses."""
        return bool(self.parts or self.earlier)


NO_CARDS = AskedCards()


def asked_cards(spec: Mapping[str, Any], resources: CardResources) -> AskedCards:
    """Read the cards that a spec asks for. Never raises."""
    containers = tuple(_of(spec, "containers", resources))
    inits = tuple(_of(spec, "initContainers", resources))
    if not any(amounts != _NOTHING for _, _, amounts in (*containers, *inits)):
        return NO_CARDS
    return _added_up(containers, inits, resources)


_Amounts = tuple[int, int, int]
"""Whole cards, thousandths of ten, units of memory."""
_NOTHING: _Amounts = (0, 0, 0)
_Container = tuple[str, bool, _Amounts]
"""Its name, whether it goes on beside the others, what it asks for."""


@lru_cache(maxsize=4096)
def _added_up(
    containers: tuple[_Container, ...], inits: tuple[_Container, ...], resources: CardResources
) -> AskedCards:
    refusals = (_refusal(name, amounts, resources) for name, _, amounts in (*inits, *containers))
    refused = next((refusal for refusal in refusals if refusal is not None), None)
    beside: list[Part] = []
    earlier: list[Earlier] = []
    plugin = plugin_beside = milli = milli_beside = 0
    for _, goes_on, amounts in inits:
        part = _part(None, amounts)
        own = _milli(amounts)
        plugin, milli = max(plugin, plugin_beside + amounts[0]), max(milli, milli_beside + own)
        if goes_on:
            plugin_beside, milli_beside = plugin_beside + amounts[0], milli_beside + own
            beside += [part] if part else []
        elif part:
            earlier.append(Earlier(part, len(beside)))
    parts = [part for number, (_, _, amounts) in enumerate(containers) if (part := _part(number, amounts))]
    plugin = max(plugin, plugin_beside + sum(amounts[0] for _, _, amounts in containers))
    milli = max(milli, milli_beside + sum(_milli(amounts) for _, _, amounts in containers))
    return AskedCards(min(plugin, MOST_CARDS), (*beside, *parts), len(beside), tuple(earlier), milli, refused)


def _refusal(name: str, amounts: _Amounts, resources: CardResources) -> str | None:
    _, core, memory = amounts
    if core > CORE_OF_A_CARD and core % CORE_OF_A_CARD:
        below = core - core % CORE_OF_A_CARD
        return (
            f"Container {name} asks for {resources.share}: {core}. {CORE_OF_A_CARD} are one GPU, and more than "
            f"one must be whole GPUs: ask for {below} or {below + CORE_OF_A_CARD}, or for less than {CORE_OF_A_CARD}."
        )
    if memory and not core:
        return (
            f"Container {name} asks for {resources.memory}: {memory} and for no {resources.share}: ask for both, "
            f"{resources.share} being 1 to {CORE_OF_A_CARD} for a share of a GPU."
        )
    return None


def _part(container: int | None, amounts: _Amounts) -> Part | None:
    _, core, memory = amounts
    if core == 0:
        return None
    if core >= CORE_OF_A_CARD:
        return Part(container, _cards(core))
    return Part(container, 1, core * _MILLI, memory)


def _milli(amounts: _Amounts) -> int:
    core = amounts[1] if amounts[1] < CORE_OF_A_CARD else _cards(amounts[1]) * CORE_OF_A_CARD
    return amounts[0] * WHOLE + core * _MILLI


def _cards(core: int) -> int:
    return -(-core // CORE_OF_A_CARD)


def _of(spec: Mapping[str, Any], kind: str, resources: CardResources) -> Iterator[_Container]:
    for number, container in enumerate(map(members, items(spec.get(kind)))):
        goes_on = kind == "initContainers" and container.get("restartPolicy") == "Always"
        name = container.get("name")
        yield (name[:63] if isinstance(name, str) else f"number {number}"), goes_on, _amounts(container, resources)


def _amounts(container: Mapping[str, Any], resources: CardResources) -> _Amounts:
    asked = members(container.get("resources"))
    parts = [found for part in ("requests", "limits") if (found := members(asked.get(part)))]
    if not parts:
        return _NOTHING
    names = {str(name) for part in parts for name in part if is_gpu_resource(str(name), resources.whole)}
    whole = sum(_most(parts, name, MOST_CARDS) for name in names)
    core = _most(parts, resources.share, MOST_CARDS * CORE_OF_A_CARD)
    return min(whole, MOST_CARDS), core, _most(parts, resources.memory, _MOST_MEMORY)


def _most(parts: Sequence[Mapping[str, Any]], name: str, limit: int) -> int:
    return max(_pieces(part.get(name), limit) for part in parts)


def _pieces(amount: object, limit: int) -> int:
    """A whole number as API servers write it: 1000 is `1k` to it. Anything else counts as the most there can be."""
    if amount is None:
        return 0
    match = _PIECES.fullmatch(str(amount))
    if match is None:
        return limit
    number, exponent, suffix = match.groups()
    return int(min(int(number) * 10 ** int(exponent or 0) * _TIMES[suffix or ""], limit))

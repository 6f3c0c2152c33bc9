"""Cards that pods have on a node, as far as is known, and the room that is left.

Of some pods it is known which cards they have. Of others only how many: those are thought to be on cards that are free
and promised to nobody, so that what is promised stays kept. Free amounts are lists over a node's cards: thousandths,
and units of memory.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pod_scheduling.domain.extender.asked_cards import AskedCards, Part
from pod_scheduling.domain.placement.tasks import WHOLE
from reservation_core.domain.cards.card_masks import bits, pick_gpus


@dataclass(frozen=True, slots=True)
class Taken:
    """So many thousandths of a card, and units of its memory. A whole card has all of its memory, and 0 here."""

    card: int
    milli: int
    memory: int = 0


Footprint = tuple[Taken, ...]
"""What a pod has at the most, by card, ascending."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Cards for a pod: at the most all in all, and for each container by its place among `spec.containers`."""

    footprint: Footprint
    containers: tuple[tuple[int, tuple[int, ...]], ...]


class FreeOnNode:
    """Free capacity of each card of one node. Never below 0: others may have put more there than there is."""

    __slots__ = ("card_memory", "memory", "milli")

    def __init__(self, milli: Sequence[int], memory: Sequence[int], card_memory: int) -> None:
        self.milli = list(milli)
        self.memory = list(memory)
        self.card_memory = card_memory

    def take(self, taken: Taken) -> None:
        """Take this; a card that the node does not have is ignored."""
        if taken.card < len(self.milli):
            memory = self.card_memory if taken.milli >= WHOLE else taken.memory
            self.milli[taken.card] = max(0, self.milli[taken.card] - taken.milli)
            self.memory[taken.card] = max(0, self.memory[taken.card] - memory)

    def whole(self, but_for: Collection[int] = ()) -> list[int]:
        """Cards that are wholly free."""
        whole = [card for card, milli in enumerate(self.milli) if milli == WHOLE]
        return [card for card in whole if card not in but_for] if but_for else whole


def place(asked: AskedCards, free: FreeOnNode, first: tuple[int, ...] | None = None) -> Placed | None:
    """Cards for all of a pod's parts, one after another; None where there is not enough. `free` is used up.

    `first` are the cards for the first part, where somebody has chosen them. A share goes where the least is free that
    is enough, then where the least memory is, then to the lowest index: as gpu-manager chooses on the node, which ends
    a container whose card it would have chosen otherwise.
    """
    total: dict[int, tuple[int, int]] = {}
    of_parts: list[tuple[int, ...]] = []
    for part in asked.parts:
        cards = first if first is not None and not of_parts else _cards(part, free)
        if cards is None or not _has_room(part, cards, free):
            return None
        for card in cards:
            free.take(Taken(card, part.milli, part.memory))
            total[card] = _sum(total.get(card, (0, 0)), (part.milli, part.memory))
        of_parts.append(cards)
    for earlier in asked.earlier:
        beside: dict[int, tuple[int, int]] = {}
        for part, cards in list(zip(asked.parts, of_parts, strict=True))[: earlier.sidecars]:
            for card in cards:
                beside[card] = _sum(beside.get(card, (0, 0)), (part.milli, part.memory))
        if not _overlay(earlier.part, beside, total, free):
            return None
    footprint = tuple(
        Taken(card, milli, memory if milli < WHOLE else 0) for card, (milli, memory) in sorted(total.items())
    )
    by_container = zip(asked.parts, of_parts, strict=True)
    return Placed(
        footprint, tuple((part.container, cards) for part, cards in by_container if part.container is not None)
    )


def place_beside_plugin(asked: AskedCards, free: FreeOnNode, first: tuple[int, ...] | None = None) -> Placed | None:
    """The same with the cards that a device plugin gives, which it names itself, and before the others."""
    if len(free.whole()) < asked.plugin:
        return None
    if not asked.shares:
        return Placed((), ())
    if asked.plugin:
        lay_out(AskedCards(plugin=asked.plugin), free, (), ())
    return place(asked, free, first)


def lay_out(asked: AskedCards, free: FreeOnNode, promised: Collection[int], own: Collection[int]) -> Footprint:
    """Where a pod that is on the node may be, when nobody knows: on free cards, those of its `own` promise first.

    Where there is not enough it has what there is.
    """
    found: dict[int, Taken] = {}
    if asked.plugin:
        wanted = free.whole()
        if own or promised:
            others = [card for card in wanted if card not in own]
            wanted = [card for card in wanted if card in own] + sorted(others, key=lambda card: card in promised)
        for card in wanted[: asked.plugin]:
            found[card] = Taken(card, WHOLE)
            free.take(found[card])
    if asked.shares:
        found |= _shares_laid_out(asked, free, promised)
    return tuple(found[card] for card in sorted(found))


def _shares_laid_out(asked: AskedCards, free: FreeOnNode, promised: Collection[int]) -> dict[int, Taken]:
    apart = FreeOnNode(free.milli, free.memory, free.card_memory)
    for card in promised:
        apart.take(Taken(card, WHOLE))
    placed = place(asked, apart) or place(asked, FreeOnNode(free.milli, free.memory, free.card_memory))
    if placed is not None:
        for taken in placed.footprint:
            free.take(taken)
        return {taken.card: taken for taken in placed.footprint}
    found: dict[int, Taken] = {}
    for part in asked.parts:  # more is on the node than it has: the emptiest cards are thought to be full
        for card in sorted(range(len(free.milli)), key=lambda card: -free.milli[card])[: part.cards]:
            found[card] = Taken(card, WHOLE)
            free.take(found[card])
    return found


def _cards(part: Part, free: FreeOnNode) -> tuple[int, ...] | None:
    if part.milli < WHOLE:
        able = [card for card in range(len(free.milli)) if _has_room(part, (card,), free)]
        best = min(able, key=lambda card: (free.milli[card], free.memory[card], card), default=None)
        return None if best is None else (best,)
    whole = free.whole()
    if len(whole) < part.cards:
        return None
    return tuple(bit.bit_length() - 1 for bit in bits(pick_gpus(sum(1 << card for card in whole), part.cards)))


def _has_room(part: Part, cards: Sequence[int], free: FreeOnNode) -> bool:
    return all(
        card < len(free.milli) and free.milli[card] >= part.milli and free.memory[card] >= part.memory for card in cards
    )


def _overlay(
    part: Part, beside: dict[int, tuple[int, int]], total: dict[int, tuple[int, int]], free: FreeOnNode
) -> bool:
    """Put what ends before the others begin where these will be, and take only what is missing there."""
    more: dict[int, tuple[int, int]] = {}
    for card in range(len(free.milli)):
        milli, memory = _sum(beside.get(card, (0, 0)), (part.milli, part.memory))
        has_milli, has_memory = total.get(card, (0, 0))
        if has_milli >= WHOLE:
            has_memory = free.card_memory
        missing = (max(0, milli - has_milli), max(0, memory - has_memory))
        if milli <= WHOLE and free.milli[card] >= missing[0] and free.memory[card] >= missing[1]:
            more[card] = missing
    if len(more) < part.cards:
        return False
    for card in sorted(more, key=lambda card: (*more[card], free.milli[card], card))[: part.cards]:
        missing = more[card]
        free.take(Taken(card, *missing))
        total[card] = _sum(total.get(card, (0, 0)), missing)
    return True


def _sum(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return one[0] + other[0], one[1] + other[1]

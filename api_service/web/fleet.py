"""All nodes and cards at one moment, and which nodes differ from the moment before: all pages are drawn from it.

Nothing here is of one viewer: whose names one sees, and what is one's own, is looked at when a page is drawn.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import blake2s
from itertools import groupby
from operator import attrgetter

from api_service.web.card_tiles import OUT_OF_USE, TileState, state_of
from reservation_core.domain.bookings import FreeSlot
from reservation_core.ports.cards_now import CardNow, NodeNow


@dataclass(frozen=True, slots=True)
class FleetNode:
    """One node. `version` is that of the fleet in which it was last different; `users` are those named on it."""

    name: str
    mark: str
    available: bool
    detail: str | None
    cards: tuple[CardNow, ...]
    version: int
    users: tuple[int, ...]
    kinds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fleet:
    """Everything at `read_at`. `layout` is the version in which nodes, or cards of nodes, last came or went.

    `openings`: of types without a card that is free now, when the next is, for an hour at least; None: nobody knows.
    """

    version: int
    layout: int
    read_at: datetime
    nodes: tuple[FleetNode, ...]
    openings: Mapping[str, datetime | None] = field(default_factory=dict)
    states: Mapping[str, Counter[TileState]] = field(default_factory=dict)
    held: Mapping[int, Counter[str]] = field(default_factory=dict)

    def node(self, name: str) -> FleetNode | None:
        """A node by its name."""
        return next((node for node in self.nodes if node.name == name), None)


@dataclass(frozen=True, slots=True)
class TypeCount:
    """One type's cards, as somebody sees them. `next_at`: None where one is free now, or nobody knows."""

    gpu_type: str
    cards: int
    free: int
    soon: int
    mine: int
    others: int
    maintenance: int
    out: int
    next_at: datetime | None


def fleet_of(before: Fleet | None, nodes: Sequence[NodeNow], cards: Iterable[CardNow], read_at: datetime) -> Fleet:
    """The fleet as it is now. What does not differ from `before` keeps its version, the whole fleet as well."""
    of_node = {name: tuple(here) for name, here in groupby(cards, key=attrgetter("node"))}
    version = 1 if before is None else before.version + 1
    known = {} if before is None else {node.name: node for node in before.nodes}
    found = tuple(_node(known.get(node.name), node, of_node.get(node.name, ()), version) for node in nodes)
    same_layout = before is not None and [*map(_layout, before.nodes)] == [*map(_layout, found)]
    if before is not None and same_layout and all(node.version != version for node in found):
        return replace(before, read_at=read_at)
    layout = before.layout if before is not None and same_layout else version
    states, held = _counted(found)
    return Fleet(version, layout, read_at, found, {} if before is None else before.openings, states, held)


def types_without_free(fleet: Fleet) -> list[str]:
    """Types of which nobody can have a card now, by name."""
    return sorted(name for name, states in fleet.states.items() if not states[TileState.FREE])


def with_openings(fleet: Fleet, slots: Iterable[FreeSlot]) -> Fleet:
    """With the first of these slots for each type that has no free card. The version counts up where that differs."""
    first: dict[str, datetime | None] = dict.fromkeys(types_without_free(fleet))
    for slot in slots:
        if slot.gpu_type in first:
            first[slot.gpu_type] = min(filter(None, (first[slot.gpu_type], slot.span.start)))
    if first == fleet.openings:
        return fleet
    return replace(fleet, version=fleet.version + 1, openings=first)


def counts(fleet: Fleet, user_id: int) -> list[TypeCount]:
    """Every type's cards as this user sees them, by name."""
    mine = fleet.held.get(user_id, Counter())
    return [
        TypeCount(
            name,
            states.total(),
            states[TileState.FREE],
            states[TileState.SOON],
            mine[name],
            states[TileState.OTHERS] - mine[name],
            states[TileState.MAINTENANCE],
            sum(states[each] for each in OUT_OF_USE),
            None if states[TileState.FREE] else fleet.openings.get(name),
        )
        for name, states in sorted(fleet.states.items())
    ]


def _node(known: FleetNode | None, node: NodeNow, cards: tuple[CardNow, ...], version: int) -> FleetNode:
    if known is not None and known.cards == cards and (known.available, known.detail) == (node.available, node.detail):
        return known
    users = {hold.user_id for card in cards for hold in (card.holder, card.follower) if hold is not None}
    return FleetNode(
        name=node.name,
        # Names may hold what means something in a selector.
        mark="n" + blake2s(node.name.encode(), digest_size=8).hexdigest(),
        available=node.available,
        detail=node.detail,
        cards=cards,
        version=version,
        users=tuple(sorted(users)),
        kinds=tuple(sorted({card.gpu_type for card in cards})),
    )


def _layout(node: FleetNode) -> tuple[object, ...]:
    return (node.name, *((card.index, card.gpu_type) for card in node.cards))


def _counted(nodes: Iterable[FleetNode]) -> tuple[dict[str, Counter[TileState]], dict[int, Counter[str]]]:
    states: dict[str, Counter[TileState]] = {}
    held: dict[int, Counter[str]] = {}
    for node in nodes:
        for card in node.cards:
            state = state_of(card, available=node.available)
            states.setdefault(card.gpu_type, Counter())[state] += 1
            if state is TileState.OTHERS and card.holder is not None:
                held.setdefault(card.holder.user_id, Counter())[card.gpu_type] += 1
    return states, held

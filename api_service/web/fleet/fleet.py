"""All nodes and cards at one moment, and which nodes differ from the moment before: all pages are drawn from it.

Nothing here is of one viewer: whose names one sees, and what is one's own, is looked at when a page is drawn.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from hashlib import blake2s
from urllib.parse import quote

from api_service.web.fleet.card_tiles import OUT_OF_USE, TileState, state_of
from reservation_core.domain.bookings.nouns import FreeSlot
from reservation_core.ports.nodes.cards_now import CardNow, NodeNow


@dataclass(frozen=True)
class FleetNode:
    """One node. `version` is that of the fleet in which it was last different; `mark` names it in a page."""

    now: NodeNow
    version: int

    @property
    def name(self) -> str:
        """What people call it."""
        return self.now.name

    @property
    def cards(self) -> tuple[CardNow, ...]:
        """By index."""
        return self.now.cards

    @cached_property
    def mark(self) -> str:
        """An id within a page: names may hold what means something in a selector."""
        return "n" + blake2s(self.name.encode(), digest_size=8).hexdigest()

    @cached_property
    def address(self) -> str:
        """The name as part of an address."""
        return quote(self.name, safe="")

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The types of its cards."""
        return tuple(sorted({card.gpu_type for card in self.cards}))

    @cached_property
    def users(self) -> tuple[int, ...]:
        """Users with something here, now or soon."""
        holds = (hold for card in self.cards for hold in (card.holder, card.follower))
        return tuple(sorted({hold.user_id for hold in holds if hold is not None}))

    @cached_property
    def layout(self) -> tuple[tuple[int, str], ...]:
        """Which cards there are."""
        return tuple((card.index, card.gpu_type) for card in self.cards)

    @cached_property
    def states(self) -> Counter[tuple[str, TileState]]:
        """How many cards there are by type and state, to somebody who holds none."""
        return Counter((card.gpu_type, state_of(card, available=self.now.available)) for card in self.cards)

    @cached_property
    def held(self) -> Counter[tuple[int, str]]:
        """How many cards are held by user and type."""
        return Counter(
            (card.holder.user_id, card.gpu_type)
            for card in self.cards
            if card.holder is not None
            and state_of(card, available=self.now.available, user_id=card.holder.user_id) is TileState.MINE
        )


@dataclass(frozen=True)
class FleetPicture:
    """Everything at `read_at`. `layout` is the version in which nodes, or cards of nodes, last came or went.

    `openings`: of types without a card that is free now, when the next is, for an hour at least; None: not within a
    week. A type that should be there and is not has not been looked up yet.
    """

    version: int
    layout: int
    read_at: datetime
    nodes: tuple[FleetNode, ...]
    openings: Mapping[str, datetime | None] = field(default_factory=dict)

    @cached_property
    def by_name(self) -> Mapping[str, FleetNode]:
        """Nodes by their names."""
        return {node.name: node for node in self.nodes}

    @cached_property
    def states(self) -> Mapping[str, Counter[TileState]]:
        """How many cards there are by type and state, to somebody who holds none."""
        found: dict[str, Counter[TileState]] = {}
        for node in self.nodes:
            for (kind, state), cards in node.states.items():
                found.setdefault(kind, Counter())[state] += cards
        return found

    @cached_property
    def held(self) -> Counter[tuple[int, str]]:
        """How many cards are held by user and type."""
        found: Counter[tuple[int, str]] = Counter()
        for node in self.nodes:
            found.update(node.held)
        return found

    @cached_property
    def full(self) -> frozenset[str]:
        """Types of which nobody can have a card now."""
        return frozenset(kind for kind, states in self.states.items() if not states[TileState.FREE])


@dataclass(frozen=True, slots=True)
class TypeCount:
    """One type's cards, as somebody sees them. `next_at`: when one is free next; `known`: whether that is known."""

    gpu_type: str
    cards: int
    free: int
    soon: int
    mine: int
    others: int
    maintenance: int
    out: int
    next_at: datetime | None
    known: bool


def fleet_of(before: FleetPicture | None, nodes: Sequence[NodeNow], read_at: datetime) -> FleetPicture:
    """The fleet as it is now. What does not differ from `before` keeps its version, the whole fleet as well.

    Nodes that are the same objects as before are not looked into.
    """
    version = 1 if before is None else before.version + 1
    known = {} if before is None else before.by_name
    found = tuple(_node(known.get(node.name), node, version) for node in nodes)
    if before is None:
        return FleetPicture(version, version, read_at, found)
    same_layout = [(node.name, node.layout) for node in before.nodes] == [(node.name, node.layout) for node in found]
    if same_layout and all(node.version != version for node in found):
        return replace(before, read_at=read_at)
    return replace(
        before, version=version, layout=before.layout if same_layout else version, read_at=read_at, nodes=found
    )


def openings_of(fleet: FleetPicture, slots: Iterable[FreeSlot]) -> dict[str, datetime | None]:
    """The first of these slots for each type that has no free card."""
    first: dict[str, datetime | None] = dict.fromkeys(fleet.full)
    for slot in slots:
        if slot.gpu_type in first:
            first[slot.gpu_type] = min(filter(None, (first[slot.gpu_type], slot.span.start)))
    return first


def with_openings(fleet: FleetPicture, openings: Mapping[str, datetime | None]) -> FleetPicture:
    """With those of types that have no free card. The version counts up where that differs."""
    there = {kind: at for kind, at in openings.items() if kind in fleet.full}
    return fleet if there == fleet.openings else replace(fleet, version=fleet.version + 1, openings=there)


def counts(fleet: FleetPicture, user_id: int) -> list[TypeCount]:
    """Every type's cards as this user sees them, by name."""
    return [
        TypeCount(
            kind,
            states.total(),
            states[TileState.FREE],
            states[TileState.SOON],
            fleet.held[user_id, kind],
            states[TileState.OTHERS] - fleet.held[user_id, kind],
            states[TileState.MAINTENANCE],
            sum(states[state] for state in OUT_OF_USE),
            fleet.openings.get(kind),
            kind not in fleet.full or kind in fleet.openings,
        )
        for kind, states in sorted(fleet.states.items())
    ]


def _node(known: FleetNode | None, node: NodeNow, version: int) -> FleetNode:
    if known is not None and (known.now is node or known.now == node):
        return known
    return FleetNode(node, version)

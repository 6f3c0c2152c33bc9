"""All nodes and GPUs at one moment, and which nodes changed since the moment before; all pages share it.

Nothing in it depends on a viewer: names and ownership are decided when a page is drawn.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from hashlib import blake2s
from urllib.parse import quote

from api_service.web.fleet.card_tiles import OUT_OF_USE, TileState, state_of
from reservation_core.domain.bookings.nouns import FreeSlot
from reservation_core.ports.nodes.cards_now import GpuNow, NodeNow

_RACK = re.compile(r"(?:^|[-_])(r(?:ack)?[-_]?\d{1,4})(?=[-_n]|$)", re.IGNORECASE)


@dataclass(frozen=True)
class FleetNode:
    """One node. `version` is the fleet's version of its last change; `mark` is its id in a page."""

    now: NodeNow
    version: int

    @property
    def name(self) -> str:
        return self.now.name

    @property
    def cards(self) -> tuple[GpuNow, ...]:
        """GPUs by index."""
        return self.now.cards

    @cached_property
    def mark(self) -> str:
        """An id within a page: names may hold characters that mean something in a selector."""
        return "n" + blake2s(self.name.encode(), digest_size=8).hexdigest()

    @cached_property
    def address(self) -> str:
        """The name, percent-encoded."""
        return quote(self.name, safe="")

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The types of its GPUs."""
        return tuple(sorted({card.gpu_type for card in self.cards}))

    @cached_property
    def rack(self) -> str:
        """The rack by the node's label, else by its name (`gpu-r07-n03`); empty where neither tells one."""
        told = _RACK.search(self.name.partition(".")[0])
        return self.now.rack or ("" if told is None else told[1])

    @cached_property
    def users(self) -> frozenset[int]:
        """Users with a hold here, now or soon."""
        holds = (hold for card in self.cards for hold in (card.holder, card.follower))
        return frozenset(hold.user_id for hold in holds if hold is not None)

    @cached_property
    def layout(self) -> tuple[str, tuple[tuple[int, str], ...]]:
        """The rack, and index and type of each GPU."""
        return self.rack, tuple((card.index, card.gpu_type) for card in self.cards)

    @cached_property
    def states(self) -> Counter[tuple[str, TileState]]:
        """How many GPUs there are by type and state, for a user without holds."""
        return Counter((card.gpu_type, state_of(card, available=self.now.available)) for card in self.cards)

    def free(self, kind: str | None = None) -> int:
        """How many GPUs (of this type) are free."""
        return self.free_gpus if kind is None else self.states[kind, TileState.FREE]

    @cached_property
    def free_gpus(self) -> int:
        return sum(self.states[kind, TileState.FREE] for kind in self.kinds)

    @cached_property
    def held(self) -> Counter[tuple[int, str]]:
        """How many GPUs are held by user and type."""
        return Counter(
            (card.holder.user_id, card.gpu_type)
            for card in self.cards
            if card.holder is not None
            and state_of(card, available=self.now.available, user_id=card.holder.user_id) is TileState.MINE
        )


@dataclass(frozen=True, slots=True)
class FleetSums:
    """GPUs by type and state, for a user without holds; held GPUs by user and type."""

    states: Counter[tuple[str, TileState]] = field(default_factory=Counter)
    held: Counter[tuple[int, str]] = field(default_factory=Counter)

    def after(self, gone: Iterable[FleetNode], come: Iterable[FleetNode]) -> "FleetSums":
        """The sums without some nodes and with others: a change costs as much as there is of it."""
        states, held = self.states.copy(), self.held.copy()
        for node in gone:
            states.subtract(node.states)
            held.subtract(node.held)
        for node in come:
            states.update(node.states)
            held.update(node.held)
        return FleetSums(+states, +held)


@dataclass(frozen=True)
class FleetPicture:
    """Everything at `read_at`. `layout` is the version in which nodes or GPUs last came or went, or racks changed.

    `openings`: when a GPU of a fully taken type is next free for an hour; None: not within a week. A type that is
    missing has not been looked up yet.
    """

    version: int
    layout: int
    read_at: datetime
    nodes: tuple[FleetNode, ...]
    sums: FleetSums
    openings: Mapping[str, datetime | None] = field(default_factory=dict)

    @cached_property
    def by_name(self) -> Mapping[str, FleetNode]:
        return {node.name: node for node in self.nodes}

    @cached_property
    def states(self) -> Mapping[str, Counter[TileState]]:
        """How many GPUs there are by type and state, for a user without holds."""
        found: dict[str, Counter[TileState]] = {}
        for (kind, state), cards in self.sums.states.items():
            found.setdefault(kind, Counter())[state] = cards
        return found

    @cached_property
    def full(self) -> frozenset[str]:
        """Types without a free GPU."""
        return frozenset(kind for kind, states in self.states.items() if not states[TileState.FREE])


@dataclass(frozen=True, slots=True)
class TypeCount:
    """One type's GPUs for a user. `next_at`: when one is next free; `known`: whether that was looked up."""

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
    """The fleet as it is now. Nodes that equal those of `before` keep their version, and so does an unchanged fleet."""
    version = 1 if before is None else before.version + 1
    known = {} if before is None else before.by_name
    found = tuple(_node(known.get(node.name), node, version) for node in nodes)
    changed = [node for node in found if node.version == version]
    if before is None:
        return FleetPicture(version, version, read_at, found, FleetSums().after((), changed))
    if found == before.nodes:
        return replace(before, read_at=read_at)
    kept = set(map(id, found))
    gone = [node for node in before.nodes if id(node) not in kept]
    same_layout = [(node.name, node.layout) for node in gone] == [(node.name, node.layout) for node in changed]
    layout = before.layout if same_layout else version
    sums = before.sums.after(gone, changed)
    return replace(before, version=version, layout=layout, read_at=read_at, nodes=found, sums=sums)


def openings_of(fleet: FleetPicture, slots: Iterable[FreeSlot]) -> dict[str, datetime | None]:
    """The first of these slots for each type without a free GPU."""
    first: dict[str, datetime | None] = dict.fromkeys(fleet.full)
    for slot in slots:
        if slot.gpu_type in first:
            first[slot.gpu_type] = min(filter(None, (first[slot.gpu_type], slot.span.start)))
    return first


def with_openings(fleet: FleetPicture, openings: Mapping[str, datetime | None]) -> FleetPicture:
    """The fleet with openings of full types. A change raises the version."""
    there = {kind: at for kind, at in openings.items() if kind in fleet.full}
    return fleet if there == fleet.openings else replace(fleet, version=fleet.version + 1, openings=there)


def counts(fleet: FleetPicture, user_id: int) -> list[TypeCount]:
    """Every type's GPUs for this user, by name."""
    return [
        TypeCount(
            kind,
            states.total(),
            states[TileState.FREE],
            states[TileState.SOON],
            fleet.sums.held[user_id, kind],
            states[TileState.OTHERS] - fleet.sums.held[user_id, kind],
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

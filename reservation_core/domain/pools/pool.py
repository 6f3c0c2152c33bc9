"""The choice of nodes and GPUs of one type for a job, so that large gaps survive.

The policy orders the nodes by their number of free GPUs (see `node_orders`); among equal ones, those with the
best-linked free GPUs go first. On a node: the best-linked set, where links are known and differ, else the smallest run
of neighbours that is long enough; GPUs that are promised later go first if the job ends before that. Sets of GPUs and
of nodes are int bit masks, so that a choice among thousands of nodes takes a few operations.
"""

from bisect import insort
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise, product

from reservation_core.domain.calendar import GpuCalendar, Range, Row, earliest_start, is_free_during, node_windows
from reservation_core.domain.cards.card_links import GpuSets, Quality, gpu_sets, links_between, quality_alike
from reservation_core.domain.cards.card_masks import bits, pick_gpus
from reservation_core.domain.cards.link_words import Links
from reservation_core.domain.cards.placement_policies import DEFAULT_POLICY, PlacementPolicy
from reservation_core.domain.model import Gpu
from reservation_core.domain.plan import PlacedGpu
from reservation_core.domain.pools.node_orders import Demand, NodeOrder, node_order

_WINDOW_CACHE_SIZE = 8
"""For how many (gpus, length) a pool keeps its nodes' windows: there is one head of the queue, seldom more."""

_COMPARED = 16
"""Of how many nodes that are equal to the policy the best-linked one is searched."""


class PoolGpu:
    """One usable GPU in a pool: its bit on its node, its calendar, and its placement at rank 0."""

    __slots__ = ("bit", "calendar", "placed")

    def __init__(self, gpu: Gpu, bit: int, calendar: GpuCalendar) -> None:
        self.bit = bit
        self.calendar = calendar
        self.placed = PlacedGpu(gpu.id, gpu.node, gpu.index, 0)

    def placed_at(self, rank: int) -> PlacedGpu:
        """The placement of this GPU at a rank."""
        placed = self.placed
        return PlacedGpu(placed.gpu_id, placed.node, placed.index, rank)


class NodeGpus:
    """The usable GPUs of one type on one node, and which of them are free now.

    `upcoming` holds, for GPUs that are free now and promised later, their bit and that start; `near` the waiting jobs
    that they are promised to. `sets` is None where all sets of GPUs are equal.
    """

    __slots__ = ("by_bit", "cards", "free", "links", "near", "position", "sets", "upcoming")

    def __init__(
        self, position: int, gpus: list[Gpu], calendars: dict[int, GpuCalendar], links: Links | None = None
    ) -> None:
        gpus = sorted(gpus, key=lambda gpu: gpu.index)
        # Neighbouring indices get neighbouring bits; any larger step skips exactly one bit.
        number = 0
        numbers = [number]
        for left, right in pairwise(gpus):
            number += 1 if right.index == left.index + 1 else 2
            numbers.append(number)
        self.position = position
        self.links = links_between(links, [gpu.index for gpu in gpus], numbers)
        self.sets: GpuSets | None = gpu_sets(self.links)
        self.cards = [PoolGpu(gpu, 1 << number, calendars[gpu.id]) for gpu, number in zip(gpus, numbers, strict=True)]
        self.by_bit = {card.bit: card for card in self.cards}
        self.free = 0
        self.upcoming: list[tuple[int, int]] = []
        self.near: list[str] = []

    def pick(self, free: int, gpus: int, preferred: int = 0) -> int:
        """Choose `gpus` of these free GPUs, `preferred` ones first among equals."""
        if self.sets is not None:
            return self.sets.pick(free, gpus, preferred)
        preferred &= free
        return pick_gpus(preferred if preferred.bit_count() >= gpus else free, gpus)

    def quality(self, free: int, gpus: int) -> Quality:
        """How well the best `gpus` of these free GPUs are linked."""
        return quality_alike(self.links, gpus) if self.sets is None else self.sets.best_quality(free, gpus)


@dataclass(slots=True)
class Shadow:
    """The reservation of the head of the queue: its latest start, and masks of GPUs by node position."""

    start: int
    cards: dict[int, int]
    nodes: int = field(init=False)

    def __post_init__(self) -> None:
        self.nodes = sum(1 << position for position in self.cards)


@dataclass(frozen=True, slots=True)
class Avoided:
    """Nodes that a job avoids, as masks of positions: never used, or used last."""

    never: int = 0
    last: int = 0


NOTHING = Avoided()

Spots = list[tuple[NodeGpus, int]]
"""A choice: for each node, in the order of ranks, the mask of its GPUs."""

Cost = tuple[float, int]
"""The cost of a choice by the policy, and how many free GPUs its nodes have left; less is better."""


class Pool:
    """All usable GPUs of one type on available nodes, prepared for the question which job can start now.

    `_buckets` has, for each number of free GPUs, the mask of the nodes with exactly that many. `refresh` must be called
    for every node whose calendars changed or where time has passed an edge. `near` counts the nodes on which a free GPU
    is next promised to one of `slots`: a waiting job, which may get it sooner. `links` are by node name.
    """

    def __init__(
        self,
        gpu_type: str,
        nodes: list[list[Gpu]],
        calendars: dict[int, GpuCalendar],
        slots: Container[str] = frozenset(),
        *,
        links: Mapping[str, Links] | None = None,
        policy: PlacementPolicy = DEFAULT_POLICY,
    ) -> None:
        self.gpu_type = gpu_type
        self._policy = policy
        self._demand: Demand = {}
        self._orders: dict[int, NodeOrder] = {}
        self.near: Counter[str] = Counter()
        self._slots = slots
        links = links or {}
        self.nodes = [
            NodeGpus(position, gpus, calendars, links.get(gpus[0].node)) for position, gpus in enumerate(nodes)
        ]
        # Whether it matters which of several nodes, or which of a node's GPUs, are taken.
        self._uneven = (
            any(node.sets is not None for node in self.nodes)
            or len({quality_alike(node.links, 2) for node in self.nodes}) > 1
        )
        self._places = {gpus[0].node: 1 << position for position, gpus in enumerate(nodes)}
        self.free = 0
        self.version = 0
        self.overrun = 0
        self.stale = set(range(len(nodes)))
        largest = max((len(node.cards) for node in self.nodes), default=0)
        self._buckets = [0] * (largest + 1)
        self._buckets[0] = (1 << len(nodes)) - 1
        self._upcoming = 0
        self._windows: dict[tuple[int, int], list[list[Range] | None]] = {}

    def refresh(self, now: int) -> None:
        """Update the nodes in `stale`."""
        if self.stale:
            for position in self.stale:
                self._refresh_node(self.nodes[position], now)
            self.stale.clear()

    def _refresh_node(self, node: NodeGpus, now: int) -> None:
        free = 0
        upcoming: list[tuple[int, int]] = []
        near: set[str] = set()
        overrun = False
        for gpu in node.cards:
            calendar = gpu.calendar
            if not calendar.rows:
                free |= gpu.bit
            elif calendar.is_free(now):
                free |= gpu.bit
                # No row is held here, and those that have ended never matter again.
                following = calendar.next_row(now)
                if following is not None:
                    upcoming.append((gpu.bit, following[0]))
                    if following[3] in self._slots:
                        near.add(following[3])
            elif calendar.overruns(now):
                overrun = True
        place = 1 << node.position
        node.upcoming = upcoming
        if near or node.near:
            self._set_near(node, near)
        self._upcoming = self._upcoming | place if upcoming else self._upcoming & ~place
        self.overrun = self.overrun | place if overrun else self.overrun & ~place
        self._set_free(node, free)

    def _set_near(self, node: NodeGpus, near: set[str]) -> None:
        for reservation_id in node.near:
            self.near[reservation_id] -= 1
            if not self.near[reservation_id]:
                del self.near[reservation_id]
        self.near.update(near)
        node.near = list(near)

    def _set_free(self, node: NodeGpus, free: int) -> None:
        before, after = node.free.bit_count(), free.bit_count()
        node.free = free
        if before != after:
            place = 1 << node.position
            self._buckets[before] &= ~place
            self._buckets[after] |= place
            self.free += after - before
        self._forget_windows(node.position)

    def note_taken(self, spots: Iterable[tuple[NodeGpus, int]]) -> None:
        """Note that GPUs were taken for later. Where none of them is free now, nothing else changes but the windows."""
        for node, mask in spots:
            if node.free & mask:
                self.stale.add(node.position)
            else:
                self._forget_windows(node.position)

    def _forget_windows(self, position: int) -> None:
        self.version += 1
        for windows in self._windows.values():
            windows[position] = None

    def positions_of(self, names: Iterable[str]) -> int:
        """The mask of the nodes with these names; unknown names are ignored."""
        return sum(self._places.get(name, 0) for name in names)

    def could_run(self, gpus: int, nodes: int, avoided: int) -> bool:
        """Whether the nodes that are not `avoided` would be enough if nothing were held."""
        able = sum(len(node.cards) >= gpus for node in self.nodes if not avoided >> node.position & 1)
        return able >= nodes

    def has_room(self, gpus: int, nodes: int, never: int = 0) -> bool:
        """Whether enough nodes outside `never` have enough free GPUs now, ignoring later promises."""
        if self.free < gpus * nodes:
            return False
        for members in self._buckets[gpus:]:
            if members:
                nodes -= (members & ~never).bit_count()
                if nodes <= 0:
                    return True
        return False

    def with_free(self, gpus: int, never: int = 0) -> Iterator[NodeGpus]:
        """The nodes outside `never` with at least so many free GPUs now."""
        for members in self._buckets[gpus:]:
            for place in bits(members & ~never):
                yield self.nodes[place.bit_length() - 1]

    def set_demand(self, demand: Demand) -> None:
        """Set the typical demand from now on."""
        if demand != self._demand:
            self._demand = demand
            self._orders.clear()

    def _order(self, gpus: int) -> NodeOrder:
        known = self._orders.get(gpus)
        if known is None:
            known = self._orders[gpus] = node_order(self._policy, gpus, len(self._buckets) - 1, self._demand)
        return known

    def place(
        self, gpus: int, nodes: int, end: int, shadow: Shadow | None, avoided: Avoided = NOTHING
    ) -> tuple[Cost, Spots] | None:
        """Where a job can start now and run until `end` without touching `shadow`, and its cost; None if nowhere."""
        order = self._order(gpus)
        tiers = (~(avoided.never | avoided.last), avoided.last) if avoided.last else (~avoided.never,)
        limited = self._upcoming
        if shadow is not None and shadow.start < end:
            limited |= shadow.nodes
        else:
            shadow = None
        spots: Spots = []
        cost = 0.0
        left = 0
        for tier, count in product(tiers, order.counts):
            members = self._buckets[count] & tier
            # Promised GPUs first: a job that ends in time fits where a long one does not.
            for node in self._in_order(members & limited, gpus) if limited else ():
                mask = _pick_limited(node, gpus, end, shadow)
                if mask:
                    spots.append((node, mask))
                    cost += order.cost[count]
                    left += count - gpus
                    if len(spots) == nodes:
                        return (cost, left), spots
            for node in self._in_order(members & ~limited, gpus):
                spots.append((node, node.pick(node.free, gpus)))
                cost += order.cost[count]
                left += count - gpus
                if len(spots) == nodes:
                    return (cost, left), spots
        return None

    def _in_order(self, members: int, gpus: int) -> Iterator[NodeGpus]:
        """These nodes; of the first few the best-linked ones go first."""
        nodes = (self.nodes[place.bit_length() - 1] for place in bits(members))
        if gpus > 1 and self._uneven:
            yield from sorted(islice(nodes, _COMPARED), key=lambda node: node.quality(node.free, gpus), reverse=True)
        yield from nodes

    def occupy(self, spots: Spots, row: Row) -> tuple[PlacedGpu, ...]:
        """Add a start to the calendars of its GPUs; returns them in the order of rank and index."""
        placed = write_row(spots, row)
        for node, mask in spots:
            if node.upcoming:
                node.upcoming = [upcoming for upcoming in node.upcoming if not upcoming[0] & mask]
                if not node.upcoming:
                    self._upcoming &= ~(1 << node.position)
            self._set_free(node, node.free & ~mask)
        return placed

    def earliest(self, gpus: int, nodes: int, length: int, now: int, never: int = 0) -> int | None:
        """The earliest start of a job by the calendars alone; None when there is none."""
        return earliest_start(self._windows_for(gpus, length, now, never), nodes, now)

    def shadow(self, gpus: int, nodes: int, length: int, now: int, never: int = 0) -> Shadow | None:
        """The earliest fit as concrete GPUs, chosen so that few of those free now are kept from others."""
        windows = self._windows_for(gpus, length, now, never)
        start = earliest_start(windows, nodes, now)
        if start is None:
            return None
        able = [
            node
            for node, free_windows in zip(self.nodes, windows, strict=True)
            if free_windows
            and (
                free_windows[0][0] <= start if len(free_windows) == 1 else any(a <= start <= b for a, b in free_windows)
            )
        ]
        able.sort(key=lambda node: (node.free.bit_count(), node.position))
        taken: dict[int, int] = {}
        for node in able[:nodes]:
            cards = [c for c in node.cards if is_free_during(c.calendar.busy(now), start, start + length)]
            cards.sort(key=lambda card: (bool(card.bit & node.free), card.bit))
            taken[node.position] = sum(card.bit for card in cards[:gpus])
        return Shadow(start, taken)

    def _windows_for(self, gpus: int, length: int, now: int, never: int) -> list[list[Range]]:
        known = self._windows.get((gpus, length))
        if known is None:
            if len(self._windows) >= _WINDOW_CACHE_SIZE:
                del self._windows[next(iter(self._windows))]
            known = self._windows[gpus, length] = [None] * len(self.nodes)
        answer: list[list[Range]] = []
        for node in self.nodes:
            windows = known[node.position]
            if windows is None:
                windows = node_windows([gpu.calendar.busy(now) for gpu in node.cards], gpus, length, now)
                # The expected end of an overrun moves with `now`, so it is never cached.
                if not self.overrun >> node.position & 1:
                    known[node.position] = windows
            answer.append(windows)
        if never:
            return [[] if never >> position & 1 else node for position, node in enumerate(answer)]
        return answer


def write_row(spots: Sequence[tuple[NodeGpus, int]], row: Row) -> tuple[PlacedGpu, ...]:
    """Add a row to the calendars of these GPUs; returns them in the order of rank and index."""
    placed: list[PlacedGpu] = []
    for rank, (node, mask) in enumerate(spots):
        for gpu in node.cards:
            if gpu.bit & mask:
                insort(gpu.calendar.rows, row)
                placed.append(gpu.placed_at(rank) if rank else gpu.placed)
    return tuple(placed)


def _pick_limited(node: NodeGpus, gpus: int, end: int, shadow: Shadow | None) -> int:
    """Choose GPUs on a node where some are promised later; 0 if too few are free until `end`."""
    free = node.free
    promised = 0
    for bit, start in node.upcoming:
        if start < end:
            free &= ~bit
        else:
            promised |= bit
    if shadow is not None:
        free &= ~shadow.cards.get(node.position, 0)
    if free.bit_count() < gpus:
        return 0
    return node.pick(free, gpus, promised)

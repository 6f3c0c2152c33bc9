"""When cards of one pool are free from now on, kept ready for the question «when is the earliest fit».

Each node has, for a number of cards and a length, a *bound*: a time before which it certainly can't have that many
free for so long. Bounds are kept in heaps, and made exact only for the nodes that come to the top: a question looks at
the few nodes that could answer it, however many there are. Bounds hold for classes of lengths (by the least of the
class), and only ever grow while places are taken; where something is given back they begin anew.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace

from reservation_core.domain.calendar import FOREVER, Range, free_intervals, merge
from reservation_core.domain.placement import NodeCards, Pool

Free = Sequence[Range]
"""The free ranges of a card in order; the last never ends."""

_CLASSES = 1
"""Leading bits of a length that tell its class: with one, a class is all lengths up to twice its least."""

_TIED = 8
"""How many nodes more than needed are looked at when several could start at the same time."""


def first_window(cards: Sequence[Free], gpus: int, length: int, at: int) -> Range | None:
    """The first start from `at` on at which `gpus` of these cards are free for `length`, and until when it can begin.

    None when there are not so many cards. The end is a bound: it may be that one can begin later still.
    """
    if len(cards) < gpus:
        return None
    while True:
        opens: list[Range] = []
        for free in cards:
            for start, end in free:
                first = start if start > at else at  # noqa: FURB136 - a call costs more, and this is asked a million times
                if end - first >= length:
                    opens.append((first, end - length))
                    break
        opens.sort()
        at = opens[gpus - 1][0]
        if gpus == 1:
            return opens[0]
        closes = sorted(close for first, close in opens if first <= at <= close)
        if len(closes) >= gpus:
            return at, closes[-gpus]


class _Bounds:
    """For one number of cards and one class of lengths: the bound of each node, and a heap of them.

    `firsts` has for each node when its cards can first take that length, in order; None where that is to be found
    anew. All numbers of cards share it.
    """

    __slots__ = ("current", "firsts", "gpus", "heap", "length")

    def __init__(self, gpus: int, length: int, current: list[int], firsts: list[list[int] | None]) -> None:
        self.gpus = gpus
        self.length = length
        self.current = current
        self.firsts = firsts
        self.heap = [(bound, position) for position, bound in enumerate(current) if bound < FOREVER]
        heapify(self.heap)

    def top(self, profile: "PoolProfile", now: int) -> tuple[int, int] | None:
        """The least bound and its node, made exact as far as that can be seen from single cards."""
        heap, current, firsts, nth = self.heap, self.current, self.firsts, self.gpus - 1
        while heap:
            bound, position = heap[0]
            if current[position] != bound:
                heappop(heap)  # it was replaced
                continue
            known = firsts[position]
            if known is None:
                known = firsts[position] = _firsts(profile.cards(position, now), self.length)
            actual = known[nth]
            if actual <= bound or actual <= now:
                return bound, position
            current[position] = actual
            heapreplace(heap, (actual, position))
        return None

    def begin_anew(self, position: int) -> None:
        """Something was given back on a node."""
        if 0 < self.current[position] < FOREVER:
            self.current[position] = 0
            heappush(self.heap, (0, position))


def _firsts(cards: Sequence[Free], length: int) -> list[int]:
    """Before when each of these cards can certainly not take something of this length, in order of time."""
    firsts = []
    for free in cards:
        for start, end in free:
            if end - start >= length:
                firsts.append(start)
                break
    firsts.sort()
    return firsts


@dataclass(frozen=True, slots=True)
class Fit:
    """A place: from `start` on, these cards of these nodes."""

    start: int
    spots: tuple[tuple[NodeCards, int], ...]


class PoolProfile:
    """One pool's free time. `forget` must be called for each node whose calendars have changed."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.nodes = pool.nodes
        self._free: list[list[Free] | None] = [None] * len(pool.nodes)
        self._freed: set[int] = set(range(len(pool.nodes)))
        self._bounds: dict[tuple[int, int], _Bounds] = {}
        self._firsts: dict[int, list[list[int] | None]] = {}

    def forget(self, position: int, *, freed: bool) -> None:
        """The calendars of this node have changed; `freed`: something may be free sooner than before."""
        self._free[position] = None
        self._forget_firsts(position)
        if freed:
            self._freed.add(position)

    def _forget_firsts(self, position: int) -> None:
        for firsts in self._firsts.values():
            firsts[position] = None

    def refresh(self) -> None:
        """Let bounds begin anew where something was given back, and look again where a pod overruns."""
        for position in self._freed:
            for bounds in self._bounds.values():
                bounds.begin_anew(position)
        self._freed.clear()
        overrun = self._pool.overrun
        while overrun:
            low = overrun & -overrun
            overrun ^= low
            self.forget(low.bit_length() - 1, freed=False)

    def cards(self, position: int, now: int) -> list[Free]:
        """The free ranges of a node's cards; those that have passed may still be among them."""
        cards = self._free[position]
        if cards is None:
            cards = [free_intervals(card.calendar.busy(now), now, FOREVER) for card in self.nodes[position].cards]
            self._free[position] = cards
        return cards

    def without(self, position: int, reservation_id: str, now: int) -> list[Free]:
        """A node's free ranges, were this reservation not there."""
        return [
            free_intervals(merge(_others(card.calendar.busy_rows(now), reservation_id)), now, FOREVER)
            for card in self.nodes[position].cards
        ]

    def take(self, spots: Sequence[tuple[NodeCards, int]], start: int, end: int) -> None:
        """Note that these cards are taken for [start, end); their calendars say so, too."""
        for node, mask in spots:
            self._forget_firsts(node.position)
            cards = self._free[node.position]
            if cards is None:
                continue
            for number, card in enumerate(node.cards):
                if card.bit & mask:
                    cards[number] = _cut(cards[number], start, end)

    def _bounds_for(self, gpus: int, length: int) -> _Bounds:
        shift = max(0, length.bit_length() - _CLASSES)
        least = (length >> shift) << shift
        known = self._bounds.get((gpus, least))
        if known is None:
            # What is known of fewer cards or less time holds for more.
            smaller = [
                bounds for (cards, lengths), bounds in self._bounds.items() if cards <= gpus and lengths <= least
            ]
            below = max(smaller, key=lambda each: each.length, default=None)
            current = [0] * len(self.nodes) if below is None else list(below.current)
            for node in self.nodes:
                if len(node.cards) < gpus:
                    current[node.position] = FOREVER
            firsts = self._firsts.setdefault(least, [None] * len(self.nodes))
            known = self._bounds[gpus, least] = _Bounds(gpus, least, current, firsts)
        return known

    def earliest(
        self,
        gpus: int,
        nodes: int,
        length: int,
        now: int,
        *,
        never: int = 0,
        before: int = FOREVER,
        instead: Mapping[int, list[Free]] | None = None,
    ) -> Fit | None:
        """The earliest fit that starts before `before`; None when there is none.

        Nodes in the mask `never` are not used. `instead` has the free ranges of nodes that are to be taken for others
        than they are.
        """
        search = _Search(self, gpus, nodes, length, now, instead or {})
        return search.run(self._bounds_for(gpus, length), never, before)

    def pick(self, cards: Sequence[Free], node: NodeCards, gpus: int, start: int, end: int) -> int:
        """Which cards of a node, as a mask: those that are least use to others, by what is left before and after."""
        able: list[tuple[int, int, int]] = []
        for number, free in enumerate(cards):
            for free_start, free_end in free:
                if free_start <= start and end <= free_end:
                    able.append((free_end, -free_start, node.cards[number].bit))
                    break
        able.sort()
        return sum(bit for _, _, bit in able[:gpus])


class _Search:
    """One question for the earliest fit: nodes are taken up in the order of the times at which they could begin."""

    def __init__(
        self,
        profile: PoolProfile,
        gpus: int,
        nodes: int,
        length: int,
        now: int,
        instead: Mapping[int, list[Free]],
    ) -> None:
        self._profile = profile
        self._gpus = gpus
        self._wanted = nodes
        self._length = length
        self._now = now
        self._instead = instead
        self._pending: list[tuple[int, int, int]] = []  # (start, node, last start)
        self._open: dict[int, tuple[int, int]] = {}  # node: its window, now that time has come to it

    def _cards(self, position: int) -> list[Free]:
        return self._instead.get(position) or self._profile.cards(position, self._now)

    def _await(self, position: int, at: int) -> None:
        window = first_window(self._cards(position), self._gpus, self._length, at)
        if window is not None:
            heappush(self._pending, (window[0], position, window[1]))

    def run(self, bounds: _Bounds, never: int, before: int) -> Fit | None:
        for position in self._instead:
            if not never >> position & 1:
                self._await(position, self._now)
        looked_at: list[tuple[int, int]] = []
        try:
            return self._sweep(bounds, never, before, looked_at)
        finally:
            for entry in looked_at:
                heappush(bounds.heap, entry)

    def _sweep(self, bounds: _Bounds, never: int, before: int, looked_at: list[tuple[int, int]]) -> Fit | None:
        pending = self._pending
        at = FOREVER
        while True:
            top = bounds.top(self._profile, self._now)
            nearest = FOREVER if top is None else max(top[0], self._now)
            upcoming = pending[0][0] if pending else FOREVER
            if at < FOREVER and (min(nearest, upcoming) > at or len(self._open) >= self._wanted + _TIED):
                return self._fit(at)
            if upcoming <= nearest:
                if upcoming >= before or not pending:
                    return None
                start, position, last = heappop(pending)
                self._open[position] = (start, last)
                if len(self._open) >= self._wanted and self._all_open(start):
                    at = start
            elif nearest >= before:
                return None
            elif top is not None:
                looked_at.append(heappop(bounds.heap))
                if top[1] not in self._instead and not never >> top[1] & 1:
                    self._await(top[1], nearest)

    def _all_open(self, at: int) -> bool:
        """Whether enough nodes could still begin at `at`; those that could not are awaited anew."""
        for position in [each for each, (_, last) in self._open.items() if last < at]:
            del self._open[position]
            self._await(position, at)
        return len(self._open) >= self._wanted

    def _fit(self, at: int) -> Fit:
        # Who has been free for long is of more use to others meanwhile.
        chosen = sorted(self._open, key=lambda position: (-self._open[position][0], position))[: self._wanted]
        nodes = self._profile.nodes
        return Fit(
            at,
            tuple(
                (
                    nodes[position],
                    self._profile.pick(self._cards(position), nodes[position], self._gpus, at, at + self._length),
                )
                for position in sorted(chosen)
            ),
        )


def _others(rows: Sequence[tuple[int, int, str]], reservation_id: str) -> list[Range]:
    return [(start, end) for start, end, owner in rows if owner != reservation_id]


def _cut(free: Free, start: int, end: int) -> list[Range]:
    """What is left of free ranges without [start, end)."""
    left: list[Range] = []
    for free_start, free_end in free:
        if free_end <= start or end <= free_start:
            left.append((free_start, free_end))
            continue
        if free_start < start:
            left.append((free_start, start))
        if end < free_end:
            left.append((end, free_end))
    return left

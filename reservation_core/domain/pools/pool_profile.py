"""The free time of one pool's GPUs from now on, prepared for the question when the earliest fit is.

For each requested number of GPUs, arrays hold the first windows of all nodes: one pass over them gives a lower bound of
each node's earliest start. Since windows only shrink while places are taken, only the nodes with the least bounds are
checked exactly. When GPUs are freed, nothing is known of their node until it is checked.
"""

from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reservation_core.domain.calendar import FOREVER, Range, Row
from reservation_core.domain.cards.card_masks import bits
from reservation_core.domain.pools.node_timeline import Timeline
from reservation_core.domain.pools.pool import NodeGpus, Pool

_KEPT = 3
"""How many windows of a node the arrays hold. The last one stands for all after it, too, and is long enough for all."""

_LEARNED = 64
"""Of how many nodes is learnt at once when they are free first."""

_TIED = 8
"""How many extra nodes are checked when several could start at the same time."""

_SIGN = np.array(63)
"""The place of the sign; a plain int would be made an array each time."""

Times = NDArray[np.uint64]


class _Firsts:
    """The first windows of all nodes for one number of GPUs; row r of the arrays holds each node's r-th window.

    `windows` has all windows of a node as long as its calendars stay as they are. Of nodes from `unseen` on nothing is
    known.
    """

    __slots__ = ("_bounds", "_flat", "_last", "_lengths", "_rows", "_starts", "unseen", "windows")

    def __init__(self, able: Sequence[bool], scratch: NDArray[np.int64]) -> None:
        self._starts = np.full((_KEPT - 1, len(able)), FOREVER, dtype=np.int64)
        self._lengths = np.zeros_like(self._starts)
        last = np.full(len(able), FOREVER, dtype=np.uint64)
        # Flat arrays are the fastest, and without a sign -1 is later than any time.
        self._flat = self._starts.ravel(), self._lengths.ravel(), scratch.ravel()
        self._bounds: tuple[Times, Times, Times] = (*scratch.view(np.uint64), last)
        # A single number is written through these three times as fast as through an array.
        self._rows = [(starts.data, lengths.data) for starts, lengths in zip(self._starts, self._lengths, strict=True)]
        self._last = last.data
        self.windows: list[list[Range] | None] = [None] * len(able)
        self.unseen = 0
        for position, is_able in enumerate(able):
            if is_able:
                self.forget(position)

    def forget(self, position: int) -> None:
        """Forget the windows of a node that has enough GPUs."""
        self._starts[0, position] = 0
        self._lengths[0, position] = FOREVER

    def note(self, position: int, windows: list[Range]) -> None:
        """Store the windows of a node, the last of which never ends."""
        self.windows[position] = windows
        (starts, lengths), (next_starts, next_lengths) = self._rows
        starts[position], end = windows[0]
        lengths[position] = end - windows[0][0]
        count = len(windows)
        if count == 1:
            next_starts[position] = FOREVER
        else:
            next_starts[position], end = windows[1]
            next_lengths[position] = end - windows[1][0]
        self._last[position] = windows[2][0] if count > 2 else FOREVER

    def note_first(self, position: int, start: int) -> None:
        """Note a time before which nothing fits on a node."""
        self._rows[0][0][position] = start

    def bounds(self, length: int) -> Times:
        """For each node a time before which nothing of this length fits; the next call writes over the answer."""
        # Where a window is too short, all bits of the shifted difference are set; elsewhere none are.
        starts, lengths, differences = self._flat
        np.subtract(lengths, length, differences)
        np.right_shift(differences, _SIGN, differences)
        np.bitwise_or(differences, starts, differences)
        first, second, last = self._bounds
        np.minimum(first, second, out=first)
        np.minimum(first, last, out=first)
        return first


class Fit(NamedTuple):
    """A place: the GPUs of each node, from `start` on."""

    start: int
    spots: tuple[tuple[NodeGpus, int], ...]


class PoolProfile:
    """The free time of one pool. `forget` must be called for each node whose calendars have changed."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.nodes = pool.nodes
        self.timelines: list[Timeline | None] = [None] * len(pool.nodes)
        self._firsts: dict[int, _Firsts] = {}
        self._scratch = np.empty((_KEPT - 1, len(pool.nodes)), dtype=np.int64)

    def forget(self, position: int, *, freed: bool) -> None:
        """Note changed calendars of a node; `freed`: a GPU may be free sooner than before."""
        self.timelines[position] = None
        for gpus, firsts in self._firsts.items():
            firsts.windows[position] = None
            if freed and gpus <= len(self.nodes[position].cards):
                firsts.forget(position)

    def refresh(self) -> None:
        """Forget nodes with overrunning pods, whose expected end moves with time."""
        for place in bits(self.pool.overrun):
            self.forget(place.bit_length() - 1, freed=False)

    def timeline(self, position: int, now: int) -> Timeline:
        known = self.timelines[position]
        if known is None:
            known = self.timelines[position] = Timeline(self.nodes[position].cards, now)
        return known

    def without(self, position: int, mask: int, row: Row, now: int) -> Timeline:
        """When a node's GPUs would be free without this row of a reservation, which these of them have.

        The reservation has no other rows there.
        """
        start, end, held, reservation_id = row
        if held or self.pool.overrun >> position & 1:
            return Timeline(self.nodes[position].cards, now, reservation_id)
        timeline = self.timeline(position, now).copy()
        timeline.give_back(mask, start, end)
        return timeline

    def take(self, spots: Sequence[tuple[NodeGpus, int]], start: int, end: int) -> None:
        """Note that these GPUs are taken for [start, end), which their calendars say already."""
        for node, mask in spots:
            position = node.position
            for firsts in self._firsts.values():
                firsts.windows[position] = None
            timeline = self.timelines[position]
            if timeline is not None:
                timeline.cut(mask, start, end)

    def firsts(self, gpus: int) -> _Firsts:
        """The first windows for this number of GPUs."""
        known = self._firsts.get(gpus)
        if known is None:
            known = self._firsts[gpus] = _Firsts([len(node.cards) >= gpus for node in self.nodes], self._scratch)
        return known

    def learn(self, gpus: int, now: int) -> bool:
        """Learn of some nodes when so many GPUs are free for the first time; true when none are left.

        Otherwise the first search would have to check all nodes at once.
        """
        firsts = self.firsts(gpus)
        count = len(self.nodes)
        if firsts.unseen < count:
            first, firsts.unseen = firsts.unseen, min(firsts.unseen + _LEARNED, count)
            for position in range(first, firsts.unseen):
                if len(self.nodes[position].cards) >= gpus:
                    firsts.note_first(position, self.timeline(position, now).first_free(gpus))
        return firsts.unseen == count

    def windows(self, position: int, gpus: int, now: int) -> list[Range]:
        """All windows of a node that has enough GPUs."""
        firsts = self._firsts[gpus]
        known = firsts.windows[position]
        if known is None:
            known = self.timeline(position, now).windows(gpus)
            firsts.note(position, known)
        return known

    def learn_windows(self, gpus: int, length: int, before: int, now: int, first: int) -> Iterator[int]:
        """Read the windows of nodes from `first` on that may have a place before a time, one at each step."""
        known = self.firsts(gpus).windows
        for position in self.may_begin(gpus, length, before).nonzero()[0].tolist():
            if position >= first and known[position] is None:
                self.windows(position, gpus, now)
                yield position

    def may_begin(self, gpus: int, length: int, before: int) -> NDArray[np.bool_]:
        """For each node whether so many GPUs may be free for this length, from a time before `before` on."""
        return self.firsts(gpus).bounds(length) < before

    def earliest(
        self,
        gpus: int,
        nodes: int,
        length: int,
        now: int,
        *,
        never: int = 0,
        after: int = -FOREVER,
        before: int = FOREVER,
        instead: Mapping[int, Timeline] | None = None,
    ) -> Fit | None:
        """The earliest fit that starts at `after` or later, and before `before`; None when there is none.

        Nodes in the mask `never` are not used. `instead` replaces the timelines of some nodes.
        """
        search = _Search(self, gpus, length, now, after, never, instead or {})
        start, positions = search.one(before) if nodes == 1 else search.several(nodes, before)
        if not positions:
            return None
        end = start + length
        chosen = [(self.nodes[position], search.timeline(position)) for position in positions]
        return Fit(start, tuple([(node, timeline.pick(gpus, start, end, node.sets)) for node, timeline in chosen]))


class _Search:
    """One search for the earliest fit, which checks nodes in the order of their bounds."""

    __slots__ = (
        "_after",
        "_bounds",
        "_gpus",
        "_instead",
        "_known",
        "_length",
        "_now",
        "_pending",
        "_profile",
        "_timelines",
    )

    def __init__(
        self,
        profile: PoolProfile,
        gpus: int,
        length: int,
        now: int,
        after: int,
        never: int,
        instead: Mapping[int, Timeline],
    ) -> None:
        self._profile = profile
        self._timelines = profile.timelines
        self._gpus = gpus
        self._length = length
        self._now = now
        self._after = max(now, after)
        firsts = profile.firsts(gpus)
        self._known = firsts.windows
        self._bounds = firsts.bounds(length)
        if after >= now:
            # Of nodes that are free then the first is taken, whatever is known of the time before.
            np.maximum(self._bounds, after, out=self._bounds)
        self._instead = instead
        self._pending: list[tuple[int, int, int]] = []  # (start, node, last start)
        if never:
            self._bounds[[place.bit_length() - 1 for place in bits(never)]] = FOREVER
            self._instead = {position: timeline for position, timeline in instead.items() if not never >> position & 1}
        for position in self._instead:
            self._bounds[position] = FOREVER
            self._await(position, self._after)

    def timeline(self, position: int) -> Timeline:
        """A node's timeline, or its replacement."""
        timeline = self._instead.get(position) or self._timelines[position]
        return self._profile.timeline(position, self._now) if timeline is None else timeline

    def one(self, before: int) -> tuple[int, list[int]]:
        """The earliest start on one node, and that node; no node when there is none before `before`."""
        bounds = self._bounds
        nodes: list[int] = []
        if self._pending and self._pending[0][0] < before:
            before, nodes = self._pending[0][0], [self._pending[0][1]]
        while True:
            position = int(bounds.argmin())
            bound = max(bounds.item(position), self._after)
            if bound >= before:
                return before, nodes
            start = self._first(position)[0]
            if start <= bound:
                return start, [position]
            bounds[position] = start

    def several(self, nodes: int, before: int) -> tuple[int, list[int]]:
        """The earliest start on several nodes together, and these; no nodes when there is none before `before`."""
        pending, bounds = self._pending, self._bounds
        opened: dict[int, int] = {}  # nodes, and the starts of their open windows
        closing: list[tuple[int, int]] = []  # their last starts, the first one first
        at = FOREVER
        nearest = -FOREVER
        while True:
            if nearest == -FOREVER:
                position = int(bounds.argmin())
                nearest = max(bounds.item(position), self._after)
            upcoming = pending[0][0] if pending else FOREVER
            if at < FOREVER and (min(nearest, upcoming) > at or len(opened) >= nodes + _TIED):
                # Prefer GPUs that became free last: those free for long are of more use to others meanwhile.
                return at, sorted(sorted(opened, key=lambda at_node: (-opened[at_node], at_node))[:nodes])
            if min(upcoming, nearest) >= before:
                return before, []
            # Of several at the same time the first goes first, whatever is known of the others.
            if upcoming < nearest or (upcoming == nearest and pending[0][1] < position):
                start, opening, last = heappop(pending)
                opened[opening] = start
                heappush(closing, (last, opening))
                while closing[0][0] < start:
                    _, past = heappop(closing)
                    del opened[past]
                    self._await(past, start)
                if len(opened) >= nodes:
                    at = start
            else:
                start, end = self._first(position)
                heappush(pending, (start, position, end - self._length))
                bounds[position] = FOREVER
                nearest = -FOREVER

    def _first(self, position: int) -> Range:
        """The first window from `after` on, of a node with enough GPUs, that is long enough."""
        for start, end in self._known[position] or self._profile.windows(position, self._gpus, self._now):
            first = start if start > self._now else self._now  # noqa: FURB136 - a call costs more, and this is hot
            if end - first >= self._length:
                if self._after > first:
                    return self._first_after(position, end)
                return first, end
        return FOREVER, FOREVER

    def _first_after(self, position: int, end: int) -> Range:
        """The same where the first window, which ends at `end`, begins before `after`."""
        if end - self._after >= self._length:
            return self._after, end
        # The stored windows are only the first ones of some length.
        window = self.timeline(position).first_window(self._gpus, self._length, self._after)
        return (FOREVER, FOREVER) if window is None else (window[0], window[1] + self._length)

    def _await(self, position: int, at: int) -> None:
        window = self.timeline(position).first_window(self._gpus, self._length, at)
        if window is not None:
            heappush(self._pending, (window[0], position, window[1]))

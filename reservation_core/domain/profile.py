"""When cards of one pool are free from now on, kept ready for the question «when is the earliest fit».

For a number of cards and a class of lengths each node has a *bound*: a time before which it certainly can't have that
many free for so long. The nodes are kept in the order of their bounds, and bounds are made exact only where a question
comes to them: it looks at the few nodes that could answer it, however many there are. A bound is that of the least
length of its class. Bounds only ever grow while places are taken; where something is given back they begin anew.
"""

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from reservation_core.domain.calendar import FOREVER, Range
from reservation_core.domain.placement import NodeCards, Pool
from reservation_core.domain.timeline import Timeline

_CLASSES = 1
"""Leading bits of a length that tell its class: with one, a class is all lengths up to twice its least."""

_TIED = 8
"""How many nodes more than needed are looked at when several could start at the same time."""


class _Order:
    """For one number of cards and one class of lengths: the nodes in the order of their bounds.

    A key is minus (bound and position in one int), so that the least bound is last and cheap to move. `seen` has the
    windows of each node by which its bound was made exact: when it has others now, the bound may be too low.
    `given_back` says up to where the profile's list of nodes that had something given back is taken into account.
    """

    __slots__ = ("bounds", "given_back", "keys", "least", "seen")

    def __init__(self, least: int, bounds: list[int], shift: int, given_back: int) -> None:
        self.least = least
        self.bounds = bounds
        self.keys = sorted(-(bound << shift | position) for position, bound in enumerate(bounds) if bound < FOREVER)
        self.seen: list[list[Range] | None] = [None] * len(bounds)
        self.given_back = given_back

    def begin_anew(self, position: int, shift: int) -> None:
        """Something was given back on a node."""
        bound = self.bounds[position]
        if 0 < bound < FOREVER:
            del self.keys[bisect_left(self.keys, -(bound << shift | position))]
            insort(self.keys, -position)
            self.bounds[position] = 0


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
        self._timelines: list[Timeline | None] = [None] * len(pool.nodes)
        self._windows: dict[int, list[list[Range] | None]] = {}
        self._orders: dict[tuple[int, int], _Order] = {}
        self._given_back: list[int] = []
        self.shift = len(pool.nodes).bit_length()

    def forget(self, position: int, *, freed: bool) -> None:
        """The calendars of this node have changed; `freed`: something may be free sooner than before."""
        self._timelines[position] = None
        for windows in self._windows.values():
            windows[position] = None
        if freed and self._orders:
            if len(self._given_back) > 4 * len(self.nodes):
                for order in self._orders.values():
                    self._catch_up(order)
                    order.given_back = 0
                self._given_back.clear()
            self._given_back.append(position)

    def _catch_up(self, order: _Order) -> None:
        """Let bounds begin anew where something was given back."""
        for position in self._given_back[order.given_back :]:
            order.begin_anew(position, self.shift)
        order.given_back = len(self._given_back)

    def refresh(self) -> None:
        """Look again where a pod overruns: how long it is thought to last moves with time."""
        overrun = self._pool.overrun
        while overrun:
            low = overrun & -overrun
            overrun ^= low
            self.forget(low.bit_length() - 1, freed=False)

    def timeline(self, position: int, now: int) -> Timeline:
        """When a node's cards are free."""
        known = self._timelines[position]
        if known is None:
            known = self._timelines[position] = Timeline(self.nodes[position].cards, now)
        return known

    def without(self, position: int, reservation_id: str, now: int) -> Timeline:
        """When a node's cards would be free, were this reservation not there."""
        return Timeline(self.nodes[position].cards, now, reservation_id)

    def take(self, spots: Sequence[tuple[NodeCards, int]], start: int, end: int) -> None:
        """Note that these cards are taken for [start, end); their calendars say so, too."""
        for node, mask in spots:
            position = node.position
            for windows in self._windows.values():
                windows[position] = None
            timeline = self._timelines[position]
            if timeline is not None:
                timeline.cut(mask, start, end)

    def _order_for(self, gpus: int, length: int) -> _Order:
        shift = max(0, length.bit_length() - _CLASSES)
        least = (length >> shift) << shift
        known = self._orders.get((gpus, least))
        if known is None:
            # What is known of fewer cards or less time holds for more.
            smaller = [(lengths, cards) for cards, lengths in self._orders if cards <= gpus and lengths <= least]
            bounds = [0] * len(self.nodes)
            given_back = len(self._given_back)
            if smaller:
                lengths, cards = max(smaller)
                below = self._orders[cards, lengths]
                bounds = list(below.bounds)
                given_back = below.given_back
            for node in self.nodes:
                if len(node.cards) < gpus:
                    bounds[node.position] = FOREVER
            known = self._orders[gpus, least] = _Order(least, bounds, self.shift, given_back)
        if known.given_back < len(self._given_back):
            self._catch_up(known)
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
        instead: Mapping[int, Timeline] | None = None,
    ) -> Fit | None:
        """The earliest fit that starts before `before`; None when there is none.

        Nodes in the mask `never` are not used. `instead` says for some nodes that they are to be taken for others than
        they are.
        """
        search = _Search(self, gpus, length, now, never, instead or {})
        order = self._order_for(gpus, length)
        start, positions = search.one(order, before) if nodes == 1 else search.several(order, nodes, before)
        if not positions:
            return None
        end = start + length
        return Fit(
            start, tuple([(self.nodes[each], search.timeline(each).pick(gpus, start, end)) for each in positions])
        )

    def windows_for(self, gpus: int) -> list[list[Range] | None]:
        """The windows of each node for so many cards, as far as they are known; see `Timeline.windows`."""
        return self._windows.setdefault(gpus, [None] * len(self.nodes))


class _Search:
    """One question for the earliest fit: nodes are taken up in the order of their bounds."""

    __slots__ = ("_gpus", "_instead", "_length", "_never", "_now", "_profile", "_shift", "_windows")

    def __init__(
        self, profile: PoolProfile, gpus: int, length: int, now: int, never: int, instead: Mapping[int, Timeline]
    ) -> None:
        self._profile = profile
        self._gpus = gpus
        self._length = length
        self._now = now
        self._instead = {each: timeline for each, timeline in instead.items() if not never >> each & 1}
        self._never = never
        for position in instead:
            self._never |= 1 << position
        self._shift = profile.shift
        self._windows = profile.windows_for(gpus)

    def timeline(self, position: int) -> Timeline:
        """A node's time, as it is to be taken for."""
        return self._instead.get(position) or self._profile.timeline(position, self._now)

    def one(self, order: _Order, before: int) -> tuple[int, list[int]]:
        """The earliest start on a single node, and that node; no node when there is none before `before`."""
        now, length, never, shift, windows = self._now, self._length, self._never, self._shift, self._windows
        keys, seen, low = order.keys, order.seen, (1 << self._shift) - 1
        found: list[int] = []
        for position, timeline in self._instead.items():
            window = timeline.first_window(self._gpus, length, now)
            if window is not None and window[0] < before:
                before, found = window[0], [position]
        index = len(keys) - 1
        while index >= 0 and before > now:
            key = -keys[index]
            if key >> shift >= before:
                break
            position = key & low
            its = windows[position]
            if its is None or seen[position] is not its:
                if self._renew(order, index, position):
                    continue
                its = windows[position]
            index -= 1
            for start, end in its or ():
                first = start if start > now else now  # noqa: FURB136 - a call costs more, and this is asked a million times
                if end - first >= length:
                    if first < before and not never >> position & 1:
                        before, found = first, [position]
                    break
        return before, found

    def _renew(self, order: _Order, index: int, position: int) -> bool:
        """Make a node's bound exact; true when it is later in the order for it."""
        its = self._windows[position]
        if its is None:
            its = self._windows[position] = self._profile.timeline(position, self._now).windows(self._gpus)
        order.seen[position] = its
        bound = FOREVER
        for start, end in its:
            bound = max(start, self._now)
            if end - bound >= order.least:
                break
        if bound <= self._now or bound <= order.bounds[position]:
            return False
        order.bounds[position] = bound
        del order.keys[index]
        insort(order.keys, -(bound << self._shift | position))
        return True

    def several(self, order: _Order, nodes: int, before: int) -> tuple[int, list[int]]:
        """The earliest start on so many nodes together, and these; no nodes when there is none before `before`."""
        pending: list[tuple[int, int, int]] = []  # (start, node, last start)
        opened: dict[int, tuple[int, int]] = {}  # node: its window, now that time has come to it
        for position in self._instead:
            self._await(pending, position, self._now)
        index = len(order.keys) - 1
        at = FOREVER
        while True:
            index, nearest = self._nearest(order, index)
            upcoming = pending[0][0] if pending else FOREVER
            if at < FOREVER and (min(nearest, upcoming) > at or len(opened) >= nodes + _TIED):
                # Who has been free for long is of more use to others meanwhile.
                return at, sorted(sorted(opened, key=lambda each: (-opened[each][0], each))[:nodes])
            if min(upcoming, nearest) >= before:
                return before, []
            if upcoming <= nearest:
                start, position, last = heappop(pending)
                opened[position] = (start, last)
                for each in [each for each, (_, closing) in opened.items() if closing < start]:
                    del opened[each]
                    self._await(pending, each, start)
                if len(opened) >= nodes:
                    at = start
            else:
                position = -order.keys[index] & ((1 << self._shift) - 1)
                index -= 1
                if not self._never >> position & 1:
                    self._await_first(pending, position)

    def _nearest(self, order: _Order, index: int) -> tuple[int, int]:
        """The index of the next node in the order, its bound made exact, and that bound."""
        while index >= 0:
            key = -order.keys[index]
            position = key & ((1 << self._shift) - 1)
            its = self._windows[position]
            if (its is not None and order.seen[position] is its) or not self._renew(order, index, position):
                return index, max(key >> self._shift, self._now)
        return index, FOREVER

    def _await_first(self, pending: list[tuple[int, int, int]], position: int) -> None:
        for start, end in self._windows[position] or ():
            first = max(start, self._now)
            if end - first >= self._length:
                heappush(pending, (first, position, end - self._length))
                return

    def _await(self, pending: list[tuple[int, int, int]], position: int, at: int) -> None:
        window = self.timeline(position).first_window(self._gpus, self._length, at)
        if window is not None:
            heappush(pending, (window[0], position, window[1]))

"""CPUs and memory of nodes: how much of them is taken at each time, and where one more job fits.

A job that asks for nothing has the share of a node that its GPUs are. Such shares fit beside each other whatever
happens, so nodes are looked at only for a job that asks for more than its share, or where another job asks for some.
Amounts are multiplied by the node's number of GPUs, so that shares are whole numbers. Bookings have the share of their
GPUs, maintenance windows have none.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from reservation_core.domain.calendar import FOREVER, GpuCalendar, Range, merge
from reservation_core.domain.model import Node
from reservation_core.domain.pools.node_timeline import Timeline
from reservation_core.domain.request_terms import Share

_MAINTENANCE = "mnt-"


class Amount(NamedTuple):
    """CPUs and memory of a node, both times its number of GPUs."""

    cpu: int
    memory: int

    def is_within(self, room: "Amount") -> bool:
        return self.cpu <= room.cpu and self.memory <= room.memory


NONE = Amount(0, 0)


class Machine:
    """What one node has, and the calendars of all its GPUs, whatever their type and condition."""

    __slots__ = ("_calendars", "_cpu", "_gpus", "_memory", "name")

    def __init__(self, node: Node, calendars: Mapping[int, GpuCalendar] | None = None) -> None:
        self.name = node.name
        self._gpus = len(node.gpus)
        self._cpu, self._memory = node.cpu_milli, node.memory_bytes
        self._calendars = [] if calendars is None else [calendars[gpu.id] for gpu in node.gpus]

    def has(self, share: Share, gpus: int) -> bool:
        """Whether a job that asks for this could run here if it were alone."""
        return self._room(share, gpus) is not None

    def exceeds(self, share: Share, gpus: int) -> bool:
        """Whether a job asks for more than the share that its GPUs are, or for what is not known to be here."""
        cpu, memory = (
            asked is not None and (has is None or asked * self._gpus > has * gpus)
            for asked, has in ((share.cpu_milli, self._cpu), (share.memory_bytes, self._memory))
        )
        return cpu or memory

    def _room(self, share: Share | None, gpus: int) -> Amount | None:
        """How much others may have beside such a job; None where it can't run."""
        cpu_asked, memory_asked = (None, None) if share is None else share
        cpu = _left(self._cpu, cpu_asked, self._gpus, gpus)
        memory = _left(self._memory, memory_asked, self._gpus, gpus)
        return None if cpu is None or memory is None else Amount(cpu, memory)

    def _demand(self, share: Share | None, gpus: int) -> Amount:
        asked = (None, None) if share is None else share
        cpu, memory = (
            0 if has is None else has * gpus if amount is None else amount * self._gpus
            for amount, has in zip(asked, (self._cpu, self._memory), strict=True)
        )
        return Amount(cpu, memory)

    def use(self, shares: Mapping[str, Share], now: int, without: str) -> "Use":
        """The use of the node from `now` on, without one reservation."""
        begins: list[tuple[Range, Amount]] = []
        asking: dict[str, tuple[int, int, int]] = {}
        for calendar in self._calendars:
            plain: list[Range] = []
            for start, end, owner in calendar.busy_rows(now) if calendar.rows else ():
                if owner == without or owner.startswith(_MAINTENANCE):
                    continue
                if owner in shares:
                    first, last, gpus = asking.get(owner, (start, end, 0))
                    asking[owner] = min(first, start), max(last, end), gpus + 1
                else:
                    plain.append((start, end))
            # A job within a booking has a part of the booking's share: its row and the booking's count once.
            begins += [(span, self._demand(None, 1)) for span in merge(plain)]
        begins += [((start, end), self._demand(shares[owner], gpus)) for owner, (start, end, gpus) in asking.items()]
        return Use(begins)

    def is_overfull(self, shares: Mapping[str, Share], now: int) -> bool:
        """Whether more is taken than there is, as where a pod overruns into a booking."""
        return not self.fits(None, 0, (now, now + 1), self.use(shares, now, ""))

    def fits(self, share: Share | None, gpus: int, span: Range, use: "Use") -> bool:
        """Whether such a job fits beside what is taken, during all of `span`."""
        room = self._room(share, gpus)
        return room is not None and use.leaves(room, *span)

    def narrowed(self, timeline: Timeline, share: Share | None, gpus: int, use: "Use") -> Timeline:
        """When GPUs are free for such a job: none where the node has too little beside them."""
        room = self._room(share, gpus)
        times = sorted({*timeline.times, *(at for at in use.times if at > timeline.times[0])})
        narrow = Timeline.__new__(Timeline)
        narrow.times, narrow.masks = [], []
        for at in times:
            mask = timeline.masks[bisect_right(timeline.times, at) - 1]
            if mask and (room is None or not use.at(at).is_within(room)):
                mask = 0
            if not narrow.masks or narrow.masks[-1] != mask:
                narrow.times.append(at)
                narrow.masks.append(mask)
        return narrow


def _left(has: int | None, asked: int | None, all_gpus: int, gpus: int) -> int | None:
    if asked is None:
        return (has or 0) * (all_gpus - gpus)
    return None if has is None or asked > has else (has - asked) * all_gpus


class Use:
    """The use of a node over time: from each of `times` until the next, the amount beside it."""

    __slots__ = ("_amounts", "times")

    def __init__(self, spans: Sequence[tuple[Range, Amount]]) -> None:
        changes: dict[int, list[int]] = {-FOREVER: [0, 0]}
        for (start, end), amount in spans:
            for at, sign in ((start, 1), (end, -1)):
                change = changes.setdefault(at, [0, 0])
                change[0] += sign * amount.cpu
                change[1] += sign * amount.memory
        self.times = sorted(changes)
        self._amounts: list[Amount] = []
        cpu = memory = 0
        for at in self.times:
            cpu += changes[at][0]
            memory += changes[at][1]
            self._amounts.append(Amount(cpu, memory))

    def at(self, at: int) -> Amount:
        """The amount that is taken at a time."""
        return self._amounts[bisect_right(self.times, at) - 1]

    def leaves(self, room: Amount, start: int, end: int) -> bool:
        """Whether no more than `room` is taken during all of [start, end)."""
        first = bisect_right(self.times, start) - 1
        return all(
            taken.is_within(room)
            for at, taken in zip(self.times[first:], self._amounts[first:], strict=True)
            if at < end
        )


def could_run(nodes: Iterable[Node], share: Share, gpus: int) -> list[Node]:
    """Those of these nodes that have enough beside GPUs for such a job."""
    return [node for node in nodes if Machine(node).has(share, gpus)]

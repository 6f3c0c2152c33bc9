"""Which slots of one pool can have become possible earlier: those that fit where GPUs were given back.

A slot is the earliest fit at the time of the decision, and taking places makes none earlier. So only on nodes where
GPUs were given back since a job was looked at, an earlier place for it may be found. This holds the nodes for the walk
that goes on, and those for the next: what is given back during a walk is for jobs that were looked at already, too.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from itertools import islice

from reservation_core.domain.calendar import FOREVER
from reservation_core.domain.pools.pool_profile import PoolProfile

_READ = 16
"""How many nodes are read at once where there may be no time for all."""


class Steps:
    """The earliest start of each length in a set of windows, as a stair: longer ones begin later.

    Each step has the node of its window. No place is as long as the last step.
    """

    __slots__ = ("_lengths", "_nodes", "_starts")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all windows."""
        self._lengths, self._starts, self._nodes = [2 * FOREVER], [FOREVER], [-1]

    def add(self, start: int, length: int, node: int) -> None:
        lengths, starts = self._lengths, self._starts
        index = bisect_left(lengths, length)
        if starts[index] <= start and index < len(starts) - 1:
            return
        first = index
        while first and starts[first - 1] >= start:
            first -= 1
        lengths[first:index] = [length]
        starts[first:index] = [start]
        self._nodes[first:index] = [node]

    def begins_before(self, length: int, before: int) -> bool:
        """Whether so long a place begins before a time."""
        return self._starts[bisect_left(self._lengths, length)] < before

    def node_for(self, length: int) -> int:
        """The node where the first so long a place begins."""
        return self._nodes[bisect_left(self._lengths, length)]


class FreedTime:
    """The nodes of one pool where GPUs were given back.

    In a new pool this is everywhere. `_asked` are jobs that now ask for something else than when they were looked at.
    `_unread` has, for each number of GPUs, the nodes whose windows are not in its steps, and for 0 those whose
    reservations are not in `beside`. Answers are right once `read_some` has read all.
    """

    def __init__(self, profile: PoolProfile) -> None:
        self._profile = profile
        self._everywhere = self._next_everywhere = True
        self.nodes: set[int] = set()
        self._next: set[int] = set()
        self._asked: set[str] = set()
        self._next_asked: set[str] = set()
        self._unread: dict[int, set[int]] = {}
        self._steps: dict[int, Steps] = {}
        self.beside: set[str] = set()

    def add(self, position: int) -> None:
        """Note a node where GPUs were given back."""
        self._next.add(position)
        self.nodes.add(position)
        for unread in self._unread.values():
            unread.add(position)

    def add_job(self, job_id: str) -> None:
        """Note a job that asks for something else than before."""
        self._asked.add(job_id)
        self._next_asked.add(job_id)

    @property
    def everywhere(self) -> tuple[bool, bool]:
        """Whether all jobs are to be looked at, in this walk and in the next."""
        return self._everywhere, self._next_everywhere

    @everywhere.setter
    def everywhere(self, both: tuple[bool, bool]) -> None:
        self._everywhere, self._next_everywhere = both

    def add_all(self) -> None:
        """Look at all jobs again."""
        self._everywhere = self._next_everywhere = True

    def begin_walk(self, *, here: bool = True) -> None:
        """Forget what jobs have been looked at for; those that ask for something else only where a walk goes `here`."""
        self._everywhere, self._next_everywhere = self._next_everywhere, False
        self.nodes, self._next = self._next, set()
        if here:
            self._asked, self._next_asked = self._next_asked, set()
        self._unread.clear()
        self._steps.clear()
        self.beside.clear()

    def may_begin(self, job_id: str, gpus: int, length: int, before: int, now: int) -> bool:
        """Whether this walk looks at a job whatever was given back, or finds it a place that is not beside its slot."""
        if self._everywhere or job_id in self._asked:
            return True
        if not self.nodes:
            return False
        steps = self._steps[gpus]
        return steps.begins_before(length, before) and self._is_left(steps, gpus, length, before, now)

    def read_some(self, gpus: int, now: int) -> bool:
        """Read the places for so many GPUs, and what is beside them, of some nodes; whether all are read."""
        unread = self._unread
        if not (unread.get(gpus, self.nodes) or unread.get(0, self.nodes)):
            return True
        return self._read_steps(gpus, now) and self._read_beside()

    def _is_left(self, steps: Steps, gpus: int, length: int, before: int, now: int) -> bool:
        """Whether a place in these steps still is there: others may have taken it since it was read."""
        window = self._profile.timeline(steps.node_for(length), now).first_window(gpus, length, now)
        if window is not None and window[0] < before:
            return True
        steps.clear()
        self._unread[gpus] = set(self.nodes)
        while not self._read_steps(gpus, now):
            pass
        return steps.begins_before(length, before)

    def may_begin_beside(self, job_id: str, gpus: int, length: int, position: int, before: int, now: int) -> bool:
        """Whether a job may find a place that begins before its slot, which is on this node, and is in its way there.

        Such a place reaches into the slot: the steps know those that don't.
        """
        if position not in self.nodes or self._profile.timeline(position, now).free_just_before(before) < gpus:
            return False
        window = self._profile.without(position, job_id, now).first_window(gpus, length, now)
        return window is not None and window[0] < before

    def _read_steps(self, gpus: int, now: int) -> bool:
        if gpus not in self._steps:
            self._steps[gpus] = Steps()
            self._profile.firsts(gpus)
        steps = self._steps[gpus]
        for position in self._take_unread(gpus):
            if len(self._profile.nodes[position].cards) >= gpus:
                for start, end in self._profile.windows(position, gpus, now):
                    first = max(start, now)
                    steps.add(first, end - first, position)
        return not self._unread[gpus]

    def _read_beside(self) -> bool:
        nodes = [self._profile.nodes[position] for position in self._take_unread(0)]
        self.beside.update([row[3] for node in nodes for card in node.cards for row in card.calendar.rows])
        return not self._unread[0]

    def _take_unread(self, gpus: int) -> list[int]:
        """Some nodes that were not read for so many GPUs, which they are from now on."""
        if gpus not in self._unread:
            self._unread[gpus] = set(self.nodes)
        unread = self._unread[gpus]
        some = list(islice(unread, _READ))
        unread.difference_update(some)
        return some


class EarlierPlaces:
    """Where jobs that ask for so many GPUs in these pools may find earlier places than their slots."""

    __slots__ = ("_freed_times", "_gpus", "_nodes_of")

    def __init__(
        self,
        freed_times: Mapping[str, FreedTime],
        gpus: int,
        nodes_of: Callable[[str], Iterable[tuple[str, int]]],
    ) -> None:
        self._freed_times = freed_times
        self._gpus = gpus
        self._nodes_of = nodes_of

    def read(self, now: int, enough: Callable[[], bool]) -> bool:
        """Read where GPUs were given back, until `enough`; whether all is read."""
        for freed in self._freed_times.values():
            while freed.nodes and not freed.everywhere[0] and not freed.read_some(self._gpus, now):
                if enough():
                    return False
        return True

    def may_begin(self, job_id: str, length: int, before: int, now: int) -> bool:
        """Whether a job may find a place that begins before its slot, which begins at `before`; false only if not.

        Where GPUs were given back must be read.
        """
        is_beside = False
        for freed in self._freed_times.values():
            if freed.may_begin(job_id, self._gpus, length, before, now):
                return True
            is_beside = is_beside or job_id in freed.beside
        return is_beside and any(
            gpu_type in self._freed_times
            and self._freed_times[gpu_type].may_begin_beside(job_id, self._gpus, length, position, before, now)
            for gpu_type, position in self._nodes_of(job_id)
        )

"""Which slots of one pool can have become possible earlier: those that fit where GPUs were given back.

A slot is the earliest fit at the time of the decision, and taking places makes none earlier. So only on nodes where
GPUs were given back since a job was looked at, an earlier place for it may be found. This holds the nodes for the walk
that goes on, and those for the next: what is given back during a walk is for jobs that were looked at already, too.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import islice

from reservation_core.domain.calendar import FOREVER, Range, Row
from reservation_core.domain.plan import Shape
from reservation_core.domain.pools.pool_profile import PoolProfile

_READ = 8
"""How many nodes are read at once where there may be no time for all."""

Slot = tuple[str, Row, Mapping[int, int]]
"""The type of a slot's pool, its row, and the masks of its GPUs by the position of the node."""


class Steps:
    """The earliest start of each length in a set of windows, as a stair: longer ones begin later.

    Each step has the node of its window. No place is as long as the last step.
    """

    __slots__ = ("_nodes", "lengths", "starts")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all windows."""
        self.lengths, self.starts, self._nodes = [2 * FOREVER], [FOREVER], [-1]

    def add(self, windows: Iterable[Range], now: int, node: int) -> None:
        """Add the windows of a node, from now on."""
        lengths, starts = self.lengths, self.starts
        for start, end in windows:
            start = start if start > now else now  # noqa: FURB136, PLW2901 - a call costs more, and this is hot
            length = end - start
            index = bisect_left(lengths, length)
            if starts[index] <= start and index < len(starts) - 1:
                continue
            first = index
            while first and starts[first - 1] >= start:
                first -= 1
            lengths[first:index] = [length]
            starts[first:index] = [start]
            self._nodes[first:index] = [node]

    def node_for(self, length: int) -> int:
        """The node where the first so long a place begins."""
        return self._nodes[bisect_left(self.lengths, length)]


class FreedTime:
    """The nodes of one pool where GPUs were given back.

    In a new pool this is everywhere. `changes` counts what was noted. `asked` are jobs that now ask for something else
    than when they were looked at. `beside` are reservations there that may only be in their own way: as many GPUs of a
    node are free just before them. `_unread` has, for each number of GPUs, the nodes whose windows are not in its
    `steps`, and for 0 those whose reservations were not read. Answers are right once `read_some` has read all.
    """

    def __init__(self, profile: PoolProfile) -> None:
        self._profile = profile
        self.pool = profile.pool
        self.changes = 0
        self.is_everywhere = self._next_everywhere = True
        self.nodes: set[int] = set()
        self._next: set[int] = set()
        self.asked: set[str] = set()
        self._next_asked: set[str] = set()
        self._unread: dict[int, set[int]] = {}
        self.steps: dict[int, Steps] = {}
        self.beside: set[str] = set()

    def add(self, position: int) -> None:
        """Note a node where GPUs were given back."""
        self.changes += 1
        self._next.add(position)
        self.nodes.add(position)
        for unread in self._unread.values():
            unread.add(position)

    def add_job(self, job_id: str) -> None:
        """Note a job that asks for something else than before."""
        self.changes += 1
        self.asked.add(job_id)
        self._next_asked.add(job_id)

    @property
    def everywhere(self) -> tuple[bool, bool]:
        """Whether all jobs are to be looked at, in this walk and in the next."""
        return self.is_everywhere, self._next_everywhere

    @everywhere.setter
    def everywhere(self, both: tuple[bool, bool]) -> None:
        self.changes += 1
        self.is_everywhere, self._next_everywhere = both

    def add_all(self) -> None:
        """Look at all jobs again."""
        self.everywhere = True, True

    def begin_walk(self, *, here: bool = True) -> None:
        """Forget what jobs have been looked at for; those that ask for something else only where a walk goes `here`."""
        self.everywhere = self._next_everywhere, False
        self.nodes, self._next = self._next, set()
        if here:
            self.asked, self._next_asked = self._next_asked, set()
        self._unread.clear()
        self.steps.clear()
        self.beside.clear()

    def read_some(self, gpus: int, now: int) -> bool:
        """Read the places for so many GPUs, and what is beside them, of some nodes; whether all are read."""
        unread = self._unread
        if not (unread.get(gpus, self.nodes) or unread.get(0, self.nodes)):
            return True
        return self._read_steps(gpus, now) and self._read_beside(now)

    def is_left(self, gpus: int, length: int, before: int, now: int) -> bool:
        """Whether a place in the steps still is there: others may have taken it. If not, the steps are to be read."""
        steps = self.steps[gpus]
        window = self._profile.timeline(steps.node_for(length), now).first_window(gpus, length, now)
        if window is not None and window[0] < before:
            return True
        self.changes += 1
        steps.clear()
        self._unread[gpus] = set(self.nodes)
        return False

    def may_begin_beside(
        self, row: Row, masks: Mapping[int, int], gpus: int, length: int, before: int, now: int
    ) -> bool:
        """Whether a job may find a place that begins before its slot in this pool, which is in its way there.

        Such a place reaches into the slot: the steps know those that don't.
        """
        for position in self.nodes & masks.keys():
            if self._profile.timeline(position, now).free_just_before(before) >= gpus:
                window = self._profile.without(position, masks[position], row, now).first_window(gpus, length, now)
                if window and window[0] < before:
                    return True
        return False

    def are_enough(self, own: Mapping[int, int], gpus: int, nodes: int, length: int, before: int, now: int) -> bool:
        """Whether so many nodes may have a place each that begins before a slot, which is in its way on its own nodes.

        A quick look: they need not have it at the same time.
        """
        profile = self._profile
        may_begin = profile.may_begin(gpus, length, before)
        able = int(may_begin.sum())
        for position in own if able < nodes else ():
            # Where a place reaches into the slot, the GPUs are free just before it.
            if not may_begin[position] and profile.timeline(position, now).free_just_before(before) >= gpus:
                able += 1
        return able >= nodes

    def _read_steps(self, gpus: int, now: int) -> bool:
        steps, profile = self.steps.get(gpus), self._profile
        if steps is None:
            steps = self.steps[gpus] = Steps()
            profile.firsts(gpus)
        for position in self._take_unread(gpus):
            if len(profile.nodes[position].cards) >= gpus:
                steps.add(profile.windows(position, gpus, now), now, position)
        return not self._unread[gpus]

    def _read_beside(self, now: int) -> bool:
        profile = self._profile
        for position in self._take_unread(0):
            rows = [row for card in profile.nodes[position].cards for row in card.calendar.rows if row[0] > now]
            timeline = profile.timeline(position, now)
            for (start, reservation_id), gpus in Counter([(row[0], row[3]) for row in rows]).items():
                if timeline.free_just_before(start) >= gpus:
                    self.beside.add(reservation_id)
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
    """Where jobs of one shape may find earlier places in these pools than their slots."""

    __slots__ = ("_freed_times", "_gpus", "_nodes", "_slot_of")

    def __init__(self, freed_times: Mapping[str, FreedTime], shape: Shape, slot_of: Callable[[str], Slot]) -> None:
        self._freed_times = freed_times
        self._gpus = shape.gpus
        self._nodes = shape.nodes
        self._slot_of = slot_of

    @property
    def version(self) -> int:
        """A number that grows with each change in the pools."""
        return sum([freed.changes + freed.pool.version for freed in self._freed_times.values()])

    def read(self, now: int, enough: Callable[[], bool]) -> bool:
        """Read where GPUs were given back, until `enough`; whether all is read."""
        for freed in self._freed_times.values():
            while freed.nodes and not freed.is_everywhere and not freed.read_some(self._gpus, now):
                if enough():
                    return False
        return True

    def stairs(self) -> list[tuple[list[int], list[int], set[str]]] | None:
        """The lengths and starts of the pools' steps, and what is beside them; None where jobs must be asked about.

        Where GPUs were given back must be read. A job that is not beside them, and finds no step, has no place.
        """
        answer: list[tuple[list[int], list[int], set[str]]] = []
        for freed in self._freed_times.values():
            if freed.is_everywhere or freed.asked:
                return None
            if freed.nodes:
                steps = freed.steps.get(self._gpus)
                if steps is None:
                    return None
                answer.append((steps.lengths, steps.starts, freed.beside))
        return answer

    def may_begin(self, job_id: str, length: int, before: int, now: int) -> bool | None:
        """Whether a job may find a place that begins before its slot, which begins at `before`; false only if not.

        Where GPUs were given back must be read; None where that must be done once more.
        """
        may_begin = self._may_begin_on_one(job_id, length, before, now)
        if not may_begin or self._nodes == 1:
            return may_begin
        own_type, _, own = self._slot_of(job_id)
        return any(
            freed.are_enough(own if gpu_type == own_type else {}, self._gpus, self._nodes, length, before, now)
            for gpu_type, freed in self._freed_times.items()
        )

    def _may_begin_on_one(self, job_id: str, length: int, before: int, now: int) -> bool | None:
        """The same for one node of a job."""
        is_beside = False
        for freed in self._freed_times.values():
            if freed.is_everywhere or job_id in freed.asked:
                return True
            if freed.nodes:
                steps = freed.steps.get(self._gpus)
                if steps is None:
                    return None
                if steps.starts[bisect_left(steps.lengths, length)] < before:
                    return freed.is_left(self._gpus, length, before, now) or None
                is_beside = is_beside or job_id in freed.beside
        if not is_beside:
            return False
        gpu_type, row, masks = self._slot_of(job_id)
        own = self._freed_times.get(gpu_type)
        return own is not None and own.may_begin_beside(row, masks, self._gpus, length, before, now)

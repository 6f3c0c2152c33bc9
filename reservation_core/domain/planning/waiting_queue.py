"""The queue of waiting jobs in memory: per requested type, possibly only its first part, kept by shape and in order.

A *shape* is (GPUs per node, nodes, nodes to avoid). Jobs of one shape are kept together because what can't be placed
for one of them can't be placed for the next: the planner asks each shape once instead of each job. Those that have a
slot are kept apart from those that don't: the latter are fewer, and it is they who need one. Those whom a quota holds
back are kept apart, too: nobody looks at them to see who can start.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from heapq import merge
from itertools import islice

from reservation_core.domain.calendar import length_micros
from reservation_core.domain.plan import Shape, Waiting

Key = tuple[int, int]
Order = tuple[int, int, int]
"""(-priority, share, seq): among equal priorities the job whose owner has had less goes first, then the older job."""

_Kind = tuple[Shape, bool, bool]
"""(shape, with a slot, held back)."""

Entry = tuple[int, int, int, Waiting, int]
"""(-priority, share, seq, job, length in microseconds)."""

_COMPACT_AFTER = 1024


class ShapeLine:
    """Jobs of one requested type and one shape in the order of the line.

    Entries before `first` are gone: most jobs leave at the front, and moving the rest each time would cost more.
    """

    __slots__ = ("_lengths", "_shortest", "entries", "first", "gpu_type", "held", "shape", "slotted")

    def __init__(self, gpu_type: str | None, shape: Shape, *, slotted: bool, held: bool = False) -> None:
        self.gpu_type = gpu_type
        self.shape = shape
        self.slotted = slotted
        self.held = held
        self.entries: list[Entry] = []
        self.first = 0
        self._lengths: Counter[int] = Counter()
        self._shortest: int | None = None

    def __len__(self) -> int:
        return len(self.entries) - self.first

    def __iter__(self) -> Iterator[Entry]:
        for index in range(self.first, len(self.entries)):
            yield self.entries[index]

    def add(self, job: Waiting, share: int) -> None:
        """Put a job in its place."""
        length = length_micros(job.length)
        entry = (-job.priority, share, job.seq, job, length)
        entries = self.entries
        if not entries or entries[-1][:3] < entry[:3]:
            entries.append(entry)
        else:
            entries.insert(bisect_left(entries, entry[:3], lo=self.first), entry)
        self._lengths[length] += 1
        if self._shortest is not None and length < self._shortest:
            self._shortest = length

    def remove(self, job: Waiting, share: int) -> None:
        """Remove a job that is in the queue."""
        index = bisect_left(self.entries, (-job.priority, share, job.seq), lo=self.first)
        length = self.entries[index][4]
        if index == self.first:
            self.first += 1
            if self.first > _COMPACT_AFTER and self.first * 2 > len(self.entries):
                del self.entries[: self.first]
                self.first = 0
        else:
            del self.entries[index]
        self._lengths[length] -= 1
        if not self._lengths[length]:
            del self._lengths[length]
            if length == self._shortest:
                self._shortest = None

    def first_after(self, order: Order) -> int:
        """The index of the first entry that comes after this place in the order of the line."""
        return bisect_left(self.entries, (*order[:2], order[2] + 1), lo=self.first)

    @property
    def shortest(self) -> int:
        """The least length of a job in it (which must not be empty)."""
        if self._shortest is None:
            self._shortest = min(self._lengths)
        return self._shortest


class Line:
    """All waiting jobs that are in memory.

    `ends` holds, for each requested type of which only the first part is in memory, the key of the last job of that
    part: jobs after it are in the database and come by a refill. `slotted` are the ids of those that have a slot; they
    are in memory wherever they stand, so that they start in it. `held` are those whom a quota holds back, `barred`
    those of them whom it would never let start. `owners` are all who were ever in.
    """

    def __init__(self) -> None:
        self.jobs: dict[str, Waiting] = {}
        self.shapes: dict[str | None, dict[_Kind, ShapeLine]] = {}
        self.ends: dict[str | None, Key | None] = {}
        self.slotted: set[str] = set()
        self.held: set[str] = set()
        self.barred: set[str] = set()
        self.owners: set[int] = set()
        self._shares: Mapping[int, int] = {}
        self._let_go_after: Order | None = None

    def order(self, job: Waiting) -> Order:
        """A job's place in the order of the line; smaller goes first."""
        return (-job.priority, self._shares.get(job.owner, 0), job.seq)

    def set_shares(self, shares: Mapping[int, int]) -> bool:
        """Order equal priorities by these ranks of their owners (0 where none is given); false if nothing changed."""
        # Without ranks, or with equal ones, the order stays.
        if dict(shares) == self._shares:
            return False
        jobs = list(self.jobs.values())
        for job in jobs:
            self._take_out(job)
        self._shares = dict(shares)
        for job in jobs:
            self._put_in(job)
        return True

    def add(self, job: Waiting, *, slotted: bool = False) -> bool:
        """Put a job in; false when its place is beyond the part of its line that is in memory, and it has no slot."""
        if job.gpu_type in self.ends and not slotted:
            end = self.ends[job.gpu_type]
            if end is None or job.key > end:
                return False
        if slotted:
            self.slotted.add(job.id)
        self.owners.add(job.owner)
        self._put_in(job)
        return True

    def _put_in(self, job: Waiting) -> None:
        shapes = self.shapes.setdefault(job.gpu_type, {})
        kind = self._kind(job)
        if kind not in shapes:
            shapes[kind] = ShapeLine(job.gpu_type, job.shape, slotted=kind[1], held=kind[2])
        shapes[kind].add(job, self._shares.get(job.owner, 0))
        self.jobs[job.id] = job

    def remove(self, job_id: str) -> Waiting | None:
        """Take a job out and answer it; None when it is not in."""
        job = self.jobs.get(job_id)
        if job is not None:
            self._take_out(job)
            self.slotted.discard(job_id)
            self.held.discard(job_id)
            self.barred.discard(job_id)
        return job

    def _kind(self, job: Waiting) -> _Kind:
        return (job.shape, job.id in self.slotted, job.id in self.held)

    def _take_out(self, job: Waiting) -> None:
        del self.jobs[job.id]
        shapes = self.shapes[job.gpu_type]
        kind = self._kind(job)
        shape_line = shapes[kind]
        shape_line.remove(job, self._shares.get(job.owner, 0))
        if not shape_line:
            del shapes[kind]
            if not shapes:
                del self.shapes[job.gpu_type]

    def mark_slotted(self, job_id: str, has_slot: bool) -> None:
        """Note that a job in line has a slot now, or none any more."""
        if has_slot == (job_id in self.slotted):
            return
        job = self.jobs[job_id]
        self._take_out(job)
        if has_slot:
            self.slotted.add(job_id)
        else:
            self.slotted.discard(job_id)
        self._put_in(job)

    def hold_back(self, job_id: str) -> None:
        """Hold back a job that a quota does not let start now."""
        if job_id not in self.held:
            job = self.jobs[job_id]
            self._take_out(job)
            self.held.add(job_id)
            self._put_in(job)

    def let_go(self) -> None:
        """Release all jobs that were held back."""
        self.barred.clear()
        for job in [entry[3] for line in self._held_lines() for entry in line]:
            self._let_go(job)

    def let_some_go(self, limit: int) -> list[Waiting]:
        """Release so many held-back jobs that have no slot and are not barred; returns them.

        The next time goes on behind them, and begins anew after the last: everybody has their turn.
        """
        lines = [line for line in self._held_lines() if not line.slotted]
        mark = self._let_go_after
        parts = (islice(line.entries, line.first if mark is None else line.first_after(mark), None) for line in lines)
        some = list(islice((entry for entry in merge(*parts) if entry[3].id not in self.barred), limit))
        self._let_go_after = some[-1][:3] if len(some) == limit else None
        for entry in some:
            self._let_go(entry[3])
        return [entry[3] for entry in some]

    def _held_lines(self) -> list[ShapeLine]:
        return [line for shapes in self.shapes.values() for line in shapes.values() if line.held]

    def _let_go(self, job: Waiting) -> None:
        self._take_out(job)
        self.held.discard(job.id)
        self._put_in(job)

    def shape_lines(self, gpu_type: str | None) -> list[ShapeLine]:
        """The lines by shape of one requested type, without those who are held back."""
        return [shape_line for shape_line in self.shapes.get(gpu_type, {}).values() if not shape_line.held]

    def pieces(self, gpu_type: str | None) -> Counter[int]:
        """Demand per node of the jobs that wait for one requested type: how many pieces of so many cards."""
        found: Counter[int] = Counter()
        for (shape, _, _), line in self.shapes.get(gpu_type, {}).items():
            found[shape.gpus] += shape.nodes * len(line)
        return found

    def in_order(self) -> Iterator[Waiting]:
        """All jobs in queue order."""
        everything = [shape_line for shapes in self.shapes.values() for shape_line in shapes.values()]
        for entry in merge(*everything):
            yield entry[3]

    def horizon(self, gpu_type: str | None) -> Key | None:
        """The key after which somebody unknown may come first in a requested type's line; None when all are known."""
        if gpu_type not in self.ends:
            return None
        end = self.ends[gpu_type]
        # Nothing is known of this queue, so a new job may come before any other.
        return end if end is not None else (-(2**63), 0)

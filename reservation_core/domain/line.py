"""The line of waiting jobs in memory: per requested type, possibly only its first part, kept by shape and in order.

A *shape* is (GPUs per node, nodes, nodes to avoid). Jobs of one shape are kept together because what can't be placed
for one of them can't be placed for the next: the planner asks each shape once instead of each job.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from heapq import merge

from reservation_core.domain.calendar import length_micros
from reservation_core.domain.plan import Shape, Waiting

Key = tuple[int, int]
Entry = tuple[int, int, Waiting, int]
"""(-priority, seq, job, length in microseconds)."""

_COMPACT_AFTER = 1024


class ShapeLine:
    """Jobs of one requested type and one shape in the order of the line.

    Entries before `first` are gone: most jobs leave at the front, and moving the rest each time would cost more.
    """

    __slots__ = ("_lengths", "_shortest", "entries", "first", "gpu_type", "shape")

    def __init__(self, gpu_type: str | None, shape: Shape) -> None:
        self.gpu_type = gpu_type
        self.shape = shape
        self.entries: list[Entry] = []
        self.first = 0
        self._lengths: Counter[int] = Counter()
        self._shortest: int | None = None

    def __len__(self) -> int:
        return len(self.entries) - self.first

    def __iter__(self) -> Iterator[Entry]:
        for index in range(self.first, len(self.entries)):
            yield self.entries[index]

    def add(self, job: Waiting) -> None:
        """Put a job in its place."""
        length = length_micros(job.length)
        entry = (-job.priority, job.seq, job, length)
        entries = self.entries
        if not entries or entries[-1][:2] < entry[:2]:
            entries.append(entry)
        else:
            entries.insert(bisect_left(entries, entry[:2], lo=self.first), entry)
        self._lengths[length] += 1
        if self._shortest is not None and length < self._shortest:
            self._shortest = length

    def remove(self, job: Waiting) -> None:
        """Take a job out that is in."""
        index = bisect_left(self.entries, job.key, lo=self.first)
        length = self.entries[index][3]
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

    @property
    def shortest(self) -> int:
        """The least length of a job in it (which must not be empty)."""
        if self._shortest is None:
            self._shortest = min(self._lengths)
        return self._shortest


class Line:
    """Everybody waiting that is in memory.

    `ends` holds, for each requested type of which only the first part is in memory, the key of the last job of that
    part: jobs after it are in the database and come by a refill.
    """

    def __init__(self) -> None:
        self.jobs: dict[str, Waiting] = {}
        self.shapes: dict[str | None, dict[Shape, ShapeLine]] = {}
        self.ends: dict[str | None, Key | None] = {}

    def add(self, job: Waiting) -> bool:
        """Put a job in; false when its place is beyond the part of its line that is in memory."""
        if job.gpu_type in self.ends:
            end = self.ends[job.gpu_type]
            if end is None or job.key > end:
                return False
        shapes = self.shapes.setdefault(job.gpu_type, {})
        shape = job.shape
        if shape not in shapes:
            shapes[shape] = ShapeLine(job.gpu_type, shape)
        shapes[shape].add(job)
        self.jobs[job.id] = job
        return True

    def remove(self, job_id: str) -> Waiting | None:
        """Take a job out and answer it; None when it is not in."""
        job = self.jobs.pop(job_id, None)
        if job is not None:
            shapes = self.shapes[job.gpu_type]
            shape_line = shapes[job.shape]
            shape_line.remove(job)
            if not shape_line:
                del shapes[job.shape]
                if not shapes:
                    del self.shapes[job.gpu_type]
        return job

    def shape_lines(self, gpu_type: str | None) -> list[ShapeLine]:
        """The lines by shape of one requested type."""
        return list(self.shapes.get(gpu_type, {}).values())

    def in_order(self) -> Iterator[Waiting]:
        """Everybody in the order of the line."""
        everything = [shape_line for shapes in self.shapes.values() for shape_line in shapes.values()]
        for entry in merge(*everything):
            yield entry[2]

    def horizon(self, gpu_type: str | None) -> Key | None:
        """The key after which somebody unknown may come first in a requested type's line; None when all are known."""
        if gpu_type not in self.ends:
            return None
        end = self.ends[gpu_type]
        # Nothing is known of this line, so whoever comes may come before anybody.
        return end if end is not None else (-(2**63), 0)

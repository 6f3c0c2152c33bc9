"""Other rules for a queue, to compare with: first come first served, EASY backfill, and conservative backfill.

Small on purpose, and apart from the product: a list of free GPUs by node, and the time at which each that is taken is
expected to be free. A job needs `gpus` on each of `nodes` nodes. Times are seconds from the first submission.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush


@dataclass(frozen=True, slots=True)
class Asked:
    """A job of a trace as these rules see it."""

    number: int
    submitted: float
    ran: float
    asked: float
    gpus: int
    nodes: int

    @property
    def area(self) -> float:
        """GPU-seconds that it asked for."""
        return self.gpus * self.nodes * self.asked


Rank = Callable[[Asked], float]


class Cards:
    """GPUs by node: when each will be free, as far as is known. Node by node the earliest first."""

    def __init__(self, nodes: Sequence[int]) -> None:
        self.until = [[0.0] * size for size in nodes]

    def copy(self) -> "Cards":
        """The same, apart."""
        other = Cards(())
        other.until = [list(node) for node in self.until]
        return other

    def fits(self, job: Asked, at: float) -> list[int] | None:
        """The nodes on which a job fits at a time, those with the least room first; None where it doesn't."""
        rooms = [
            (sum(until <= at for until in node), number)
            for number, node in enumerate(self.until)
            if len(node) >= job.gpus and node[job.gpus - 1] <= at
        ]
        return [number for _, number in sorted(rooms)[: job.nodes]] if len(rooms) >= job.nodes else None

    def earliest(self, job: Asked) -> float:
        """The first time at which a job fits, when nothing else comes."""
        return sorted(node[job.gpus - 1] for node in self.until if len(node) >= job.gpus)[job.nodes - 1]

    def take(self, job: Asked, numbers: Sequence[int], at: float, until: float) -> None:
        """Give a job its GPUs on these nodes."""
        for number in numbers:
            node = self.until[number]
            free = [index for index, end in enumerate(node) if end <= at][-job.gpus :]
            for index in reversed(free):
                del node[index]
            for _ in free:
                insort(node, until)

    def give_back(self, job: Asked, numbers: Sequence[int], until: float, at: float) -> None:
        """Take back what a job has, sooner than expected."""
        for number in numbers:
            node = self.until[number]
            for _ in range(job.gpus):
                node.remove(until)
                insort(node, at)


def backfill(jobs: Sequence[Asked], nodes: Sequence[int], rank: Rank, *, behind_head: bool = True) -> list[float]:
    """The waits of jobs by EASY backfill in the order of a rank, in the order of `jobs`.

    The first that can't start has a reservation: those behind start only where that delays it by nothing. Without
    `behind_head` none of them starts: first come first served.
    """
    cards = Cards(nodes)
    queue: list[tuple[float, int, Asked]] = []
    ends: list[tuple[float, int, Asked, list[int], float]] = []
    waits = [0.0] * len(jobs)
    coming = 0
    while coming < len(jobs) or ends:
        at = min(jobs[coming].submitted if coming < len(jobs) else float("inf"), ends[0][0] if ends else float("inf"))
        while ends and ends[0][0] <= at:
            _, _, job, numbers, until = heappop(ends)
            cards.give_back(job, numbers, until, at)
        while coming < len(jobs) and jobs[coming].submitted <= at:
            insort(queue, (rank(jobs[coming]), jobs[coming].number, jobs[coming]))
            coming += 1
        head: Asked | None = None
        shadow_at = 0.0
        for entry in list(queue):
            job = entry[2]
            spots = cards.fits(job, at)
            if spots is not None and head is not None and at + job.asked > shadow_at:
                later = cards.copy()
                later.take(job, spots, at, at + job.asked)
                if later.earliest(head) > shadow_at:
                    spots = None
            if spots is not None:
                queue.remove(entry)
                cards.take(job, spots, at, at + job.asked)
                heappush(ends, (at + job.ran, job.number, job, spots, at + job.asked))
                waits[job.number] = at - job.submitted
            elif head is None:
                if not behind_head:
                    break
                head, shadow_at = job, cards.earliest(job)
    return waits


def conservative(jobs: Sequence[Asked], nodes: Sequence[int]) -> list[float]:
    """The waits by conservative backfill: each job gets the earliest slot as it comes, and starts in it.

    Jobs that come later have what is given back early.
    """
    steps = [_Steps(size) for size in nodes]
    waits = [0.0] * len(jobs)
    ends: list[tuple[float, int, Asked, list[int], float]] = []
    for job in jobs:
        while ends and ends[0][0] <= job.submitted:
            at, _, ended, numbers, until = heappop(ends)
            for number in numbers:
                steps[number].add(at, until, ended.gpus)
        able = [number for number, size in enumerate(nodes) if size >= job.gpus]
        at = job.submitted
        while True:
            starts = sorted((steps[number].earliest(job.gpus, job.asked, at), number) for number in able)[: job.nodes]
            if starts[-1][0] == at:
                break
            at = starts[-1][0]
        numbers = [number for _, number in starts]
        for number in numbers:
            steps[number].add(at, at + job.asked, -job.gpus)
        heappush(ends, (at + job.ran, job.number, job, numbers, at + job.asked))
        waits[job.number] = at - job.submitted
    return waits


class _Steps:
    """How many GPUs of a node are free from when on."""

    def __init__(self, size: int) -> None:
        self._times = [0.0]
        self._free = [size]

    def add(self, start: float, end: float, gpus: int) -> None:
        """So many more are free in [start, end)."""
        if end <= start:
            return
        first, last = self._edge(start), self._edge(end)
        for index in range(first, last):
            self._free[index] += gpus

    def _edge(self, at: float) -> int:
        index = bisect_left(self._times, at)
        if index == len(self._times) or self._times[index] != at:
            self._times.insert(index, at)
            self._free.insert(index, self._free[index - 1])
        return index

    def earliest(self, gpus: int, length: float, after: float) -> float:
        """The first time from `after` on at which so many are free for a length."""
        index = bisect_right(self._times, after) - 1
        if index > 64:
            # The past never counts again.
            del self._times[: index - 1], self._free[: index - 1]
            index = 1
        start = after
        while index < len(self._times):
            if self._free[index] < gpus:
                start = self._times[index + 1]
            elif index + 1 == len(self._times) or self._times[index + 1] >= start + length:
                return start
            index += 1
        return start


FIRST = "first come first served"
EASY = "EASY"
EASY_SMALL = "EASY, small first"
REFERENCES: Mapping[str, Callable[[Sequence[Asked], Sequence[int]], list[float]]] = {
    FIRST: lambda jobs, nodes: backfill(jobs, nodes, lambda job: job.submitted, behind_head=False),
    EASY: lambda jobs, nodes: backfill(jobs, nodes, lambda job: job.submitted),
    EASY_SMALL: lambda jobs, nodes: backfill(jobs, nodes, lambda job: job.area),
    "conservative": conservative,
}


def waits_of(rule: str, jobs: Sequence[Asked], nodes: Sequence[int]) -> list[float]:
    """The waits of jobs under one of these rules, in seconds, in the order of `jobs`."""
    return REFERENCES[rule](jobs, nodes)

"""Which waiting jobs wait for which others, and from when on the latest of these lets a job start."""

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import NamedTuple

from reservation_core.domain.calendar import FOREVER, OVERRUN, length_micros
from reservation_core.domain.jobs.promises import SLACK
from reservation_core.domain.plan import Need, Waiting
from reservation_core.domain.planning.open_rows import Ledger
from reservation_core.domain.planning.waiting_queue import Order

IN_TIME = length_micros(SLACK)
"""So much later a start is in time: that much an end may be later, and so long a slot waits for the job."""


class Span(NamedTuple):
    """[start, end) of a job's slot, or of the GPUs that it has; in microseconds."""

    start: int
    end: int


SpanOf = Callable[[str], Span | None]
"""Until when a job has its GPUs, at the latest; None where that isn't known, or others may take them before."""


class Floor(NamedTuple):
    """From when on a job may start: `at`, not before the `known_end` of what it waits for. `need` decides it, if any.

    `at` is None where nothing is known of `need`, or it has lasted longer than it could.
    """

    at: int | None
    known_end: int
    need: Need | None


class Turns:
    """Jobs to look at, by the places that they were added with."""

    def __init__(self) -> None:
        self._heap: list[tuple[tuple[bool, Order], str]] = []
        self._known: set[str] = set()

    @property
    def first(self) -> str | None:
        return self._heap[0][1] if self._heap else None

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._known

    def add(self, job_id: str, place: tuple[bool, Order]) -> None:
        """Add a job that is not among them."""
        self._known.add(job_id)
        heappush(self._heap, (place, job_id))

    def take_first(self) -> None:
        """Remove the first."""
        self._known.discard(heappop(self._heap)[1])


class ChainLinks:
    """Waiting jobs that wait for others, by id, and those of them that have to be looked at.

    `news` are those of which something has changed, `turns` those that were found and not looked at yet.
    """

    def __init__(self) -> None:
        self.jobs: dict[str, Waiting] = {}
        self.news: set[str] = set()
        self.turns = Turns()
        self._needed_by: dict[str, set[str]] = {}
        self._late: dict[str, int] = {}

    def put(self, job: Waiting) -> None:
        """Note a job with what it waits for now."""
        self.drop(job.id)
        self.jobs[job.id] = job
        for need in job.needs or ():
            self._needed_by.setdefault(need.job, set()).add(job.id)
        self.news.add(job.id)

    def drop(self, job_id: str) -> Waiting | None:
        """Forget a job, which waits for others no longer; returns what was known of it."""
        job = self.jobs.pop(job_id, None)
        for need in () if job is None else job.needs or ():
            others = self._needed_by[need.job]
            others.discard(job_id)
            if not others:
                del self._needed_by[need.job]
        self.news.discard(job_id)
        return job

    def dependants(self, job_id: str) -> Iterable[str]:
        """The jobs that wait for a job."""
        return self._needed_by.get(job_id, ())

    def note(self, job_id: str) -> None:
        """Note that a job has other GPUs or another slot than before, or none."""
        self.news.update(self.dependants(job_id))
        if job_id in self.jobs:
            self.news.add(job_id)

    def note_late(self, late: dict[str, int]) -> None:
        """Note by how much the jobs are late whose slots have come."""
        for job_id, by in late.items():
            if self._late.get(job_id) != by:
                self.note(job_id)
        self._late = late

    def waits_for_end(self, job_id: str, other: str) -> bool:
        """Whether a job waits for the end of another, or for that of one that does."""
        found = {job_id}
        left = [job_id]
        while left:
            job = self.jobs.get(left.pop())
            ends = {need.job for need in (job.needs or () if job is not None else ()) if not need.by_start}
            if other in ends:
                return True
            left += ends - found
            found |= ends
        return False

    def note_all(self) -> None:
        """Look at all jobs again."""
        self.news.update(self.jobs)


def late_by(ledger: Ledger, job_id: str, at: int) -> int:
    """By how much a job will start later than its slot, which has come; in steps, so that it changes once a minute."""
    late = at - ledger.slots[job_id][0]
    return -(-late // OVERRUN) * OVERRUN if late > IN_TIME else 0


def floor_of(job: Waiting, span_of: SpanOf, at: int) -> Floor:
    """From when on a job may start, by the latest ends of what it waits for."""
    if not job.needs:
        return Floor(at + OVERRUN, -FOREVER, None)
    latest = known_end = -FOREVER
    last: Need | None = None
    unknown: Need | None = None
    for need in job.needs:
        span = span_of(need.job)
        if span is None:
            unknown = unknown or need
            continue
        time = span.start + need.beside if need.by_start else span.end
        if time <= at:  # it has lasted longer than it could
            unknown = unknown or need
            continue
        known_end = max(known_end, time)
        if time > latest:
            latest, last = time, need
    return Floor(latest, known_end, last) if unknown is None else Floor(None, known_end, unknown)

"""How far the walk through jobs with a slot has come."""

from typing import NamedTuple

from reservation_core.domain.plan import Shape, Waiting
from reservation_core.domain.planning.waiting_queue import Entry, Order, ShapeQueue
from reservation_core.domain.pools.freed_time import EarlierPlaces

LEAST = 4
"""How many jobs of a shape are passed over at once at first: a decision may have them looked at anew."""


class Passed(NamedTuple):
    """How far the jobs of one queue were passed over.

    The index behind the last job that was looked at in its turn, or less; that of the next job to be looked at, with
    which so many are passed over at once.
    """

    version: int
    walked: int
    upcoming: int
    at_once: int


class SlotWalk:
    """How far the search for earlier slots has come: it goes through jobs with a slot, a part of the queue at a time.

    `gpu_types` are the types of the pools in which something was given back before it began; none when it is over.
    `tries` counts how often it was tried in vain to make room since then, `too_long` has the least length for which
    that failed, by type and shape (see `making_room`). It is `paused` at a job before which there was no time to go on.
    `changes` counts the tries and when they were forgotten. `looked` has at which version of them places were read, and
    the least length of jobs that get no room there. `passed` has how far each queue was passed over.
    """

    def __init__(self) -> None:
        self.gpu_types: frozenset[str] = frozenset()
        self.tries = 0
        self.too_long: dict[tuple[str | None, Shape], int] = {}
        self.changes = 0
        self.looked: dict[EarlierPlaces, tuple[int, int]] = {}
        self.passed: dict[ShapeQueue, Passed] = {}
        self.paused: Entry | None = None
        self._after: Order | None = None
        self._nodes_read: tuple[str, dict[str, int]] = ("", {})

    def begin(self, gpu_types: frozenset[str]) -> None:
        """Begin at the start of the queue."""
        self.gpu_types = gpu_types
        self._after = None
        self.looked.clear()
        self.passed.clear()

    def note_vain_try(self, job: Waiting, length: int) -> None:
        """Note that no room could be made for a job of this length."""
        self.changes += 1
        self.tries += 1
        self.too_long[job.gpu_type, job.shape] = length

    def forget_tries(self) -> None:
        """Try again to make room: something was given back."""
        self.changes += 1
        self.tries = 0
        self.too_long.clear()

    def begin_again(self) -> None:
        """Begin at the start once more: the queue has another order."""
        self._after = None

    def first_of(self, shape_queue: ShapeQueue) -> int:
        """The index of the first job of a shape that the walk has not come to."""
        return shape_queue.first_after(self._after)

    def go_on_in(self, shape_queue: ShapeQueue, version: int) -> Passed:
        """How far a queue was passed over: no further than the walk has come if anything has changed since."""
        known = self.passed.get(shape_queue)
        if known is None or known.version != version + shape_queue.changes:
            first = self.first_of(shape_queue)
            return Passed(version + shape_queue.changes, first, first, LEAST)
        entries, index = shape_queue.entries, known.upcoming
        if index < len(entries) and self._after is not None and entries[index][0] <= self._after:
            return known._replace(upcoming=self.first_of(shape_queue))  # it was looked at last
        return known

    def nodes_read_for(self, job_id: str) -> dict[str, int]:
        """Up to which position of each type of GPU nodes were read for a job, in several parts.

        None is read twice: what is known of nodes whose pods overrun is forgotten before each part.
        """
        if self._nodes_read[0] != job_id:
            self._nodes_read = job_id, {}
        return self._nodes_read[1]

    def forget_nodes_read(self) -> None:
        """Begin anew with the next job."""
        self._nodes_read = "", {}

    def pause(self, at: Entry) -> None:
        """Pause at a job; those before it need not be looked at again."""
        self.paused = at
        rank, share, standing, seq = at[0]
        self._after = rank, share, standing, seq - 1

    def go_on(self, last: Entry | None, *, over: bool) -> None:
        """Remember the last job that was looked at in this part; `over` says that there are no more."""
        self.paused = None
        if over:
            self.gpu_types = frozenset()
            self.looked.clear()
            self.passed.clear()
        elif self.gpu_types and last is not None:
            self._after = last[0] if self._after is None else max(last[0], self._after)

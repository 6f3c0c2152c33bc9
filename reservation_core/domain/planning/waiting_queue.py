"""The queue of waiting jobs in memory: per requested type, possibly only its first part, kept by shape and in order.

A *shape* is (GPUs per node, nodes, nodes to avoid). Jobs of one shape are kept together because what can't be placed
for one of them can't be placed for the next: the planner asks each shape once instead of each job. Jobs with a slot are
kept apart from those without: the latter are fewer, and they need one. Jobs that a quota holds back are kept apart,
too: no pass looks at them.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from heapq import merge
from itertools import islice

from reservation_core.domain.calendar import length_micros
from reservation_core.domain.plan import Shape, Waiting
from reservation_core.domain.planning.standings import BY_ARRIVAL, Orders, standing

Key = tuple[int, int]
Order = tuple[int, int, int, int]
"""(-priority, share, standing, seq): among equal priorities the job whose owner has had less goes first, then the job
with the smaller `standing`, then the older. Preemptible jobs go after all others."""

_LAST = 1_000_000
"""Added to the first number of preemptible jobs."""

_Kind = tuple[Shape, bool, bool, bool]
"""(shape, with a slot, held back, preemptible)."""

Entry = tuple[Order, Waiting, int]
"""A job with its place in queue order and its length in microseconds."""

RANKED_EVERY = length_micros(timedelta(minutes=10))
"""How long the places of jobs in the queue stay as they are while time passes."""

_COMPACT_AFTER = 1024


class ShapeQueue:
    """Jobs of one requested type and one shape in queue order.

    Entries before `first` are gone: most jobs leave at the front, and moving the rest each time would cost more.
    `changes` counts how often jobs came, went or got another place.
    """

    __slots__ = (
        "_lengths",
        "_shortest",
        "changes",
        "entries",
        "first",
        "gpu_type",
        "held",
        "kind",
        "preemptible",
        "shape",
        "slotted",
    )

    def __init__(self, gpu_type: str | None, kind: _Kind) -> None:
        self.gpu_type = gpu_type
        self.kind = kind
        self.shape, self.slotted, self.held, self.preemptible = kind
        self.entries: list[Entry] = []
        self.first = self.changes = 0
        self._lengths: Counter[int] = Counter()
        self._shortest: int | None = None

    def __len__(self) -> int:
        return len(self.entries) - self.first

    def __iter__(self) -> Iterator[Entry]:
        return self.after(None)

    def add(self, entry: Entry) -> None:
        """Put a job in its place."""
        self.changes += 1
        order, _, length = entry
        entries = self.entries
        if not entries or entries[-1][0] < order:
            entries.append(entry)
        else:
            entries.insert(bisect_left(entries, (order,), lo=self.first), entry)
        self._lengths[length] += 1
        if self._shortest is not None and length < self._shortest:
            self._shortest = length

    def remove(self, entry: Entry) -> None:
        """Remove a job that is in it."""
        self.changes += 1
        length = entry[2]
        index = self.first
        if self.entries[index] is not entry:
            index = bisect_left(self.entries, (entry[0],), lo=index)
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

    def rank(self, order: Callable[[Waiting], Order]) -> None:
        """Put the jobs in this order."""
        self.changes += 1
        self.entries = sorted([(order(job), job, length) for _, job, length in self.entries[self.first :]])
        self.first = 0

    def first_after(self, order: Order | None) -> int:
        """The index of the first entry that comes after this place in queue order; None is the start."""
        if order is None:
            return self.first
        return bisect_left(self.entries, ((*order[:3], order[3] + 1),), lo=self.first)

    def after(self, order: Order | None) -> Iterator[Entry]:
        """The entries after this place in queue order; None is the start."""
        for index in range(self.first_after(order), len(self.entries)):
            yield self.entries[index]

    @property
    def shortest(self) -> int:
        """The least length of a job in it (which must not be empty)."""
        if self._shortest is None:
            self._shortest = min(self._lengths)
        return self._shortest


class WaitingQueue:
    """All waiting jobs that are in memory.

    `ends` holds, for each requested type of which only the first part is in memory, the key of the last job of that
    part: jobs after it are in the database and come by a refill. `slotted` are the ids of jobs with a slot; they are in
    memory wherever they stand, and start in it. `held` are jobs that a quota holds back, `barred` those for which
    there is no time. `promises` are promised starts by job. `arrivals` came, or were released, since the last pass.
    `owners` are those of all jobs that it ever had, `orders` how the jobs of projects are ordered.
    """

    def __init__(
        self,
        jobs: Iterable[Waiting] = (),
        complete_types: Collection[str | None] = frozenset(),
        slots: Collection[str] = frozenset(),
    ) -> None:
        self.jobs: dict[str, Waiting] = {}
        self._entries: dict[str, Entry] = {}
        self._queues: dict[str, ShapeQueue] = {}
        self.shapes: dict[str | None, dict[_Kind, ShapeQueue]] = {}
        self.slotted: set[str] = set()
        self.held: set[str] = set()
        self.barred: set[str] = set()
        self.arrivals: dict[str, Waiting] = {}
        self.owners: set[int] = set()
        self._shares: Mapping[int, int] = {}
        self._released_after: Order | None = None
        self.orders = BY_ARRIVAL
        self._ranked_at = 0
        self.promises: dict[str, int] = {}
        jobs = sorted(jobs, key=lambda job: job.key)
        self.ends: dict[str | None, Key | None] = {
            job.gpu_type: job.key for job in jobs if job.gpu_type not in complete_types and job.id not in slots
        }
        for job in jobs:
            self.add(job, slotted=job.id in slots)

    def order(self, job: Waiting) -> Order:
        """A job's place in queue order; smaller goes first."""
        rank = _LAST - job.priority if job.preemptible else -job.priority
        return (rank, self._shares.get(job.owner, 0), standing(job, self.orders, self._ranked_at), job.seq)

    def set_shares(self, shares: Mapping[int, int]) -> bool:
        """Order equal priorities by these ranks of their owners (0 where none is given); false if nothing changed."""
        # Without ranks, or with equal ones, the order stays.
        if dict(shares) == self._shares:
            return False
        self._shares = dict(shares)
        self._rank()
        return True

    def is_by_area(self, job: Waiting) -> bool:
        """Whether small jobs go first in a job's project."""
        return self.orders.is_by_area(job.project)

    def set_orders(self, orders: Orders) -> bool:
        """Order the jobs of projects so from now on; false if nothing changed."""
        if orders == self.orders:
            return False
        self.orders = orders
        self._rank()
        return True

    def note_time(self, now: int) -> bool:
        """Rank the jobs anew from time to time; true when that was done."""
        if now - self._ranked_at < RANKED_EVERY:
            return False
        self._ranked_at = now
        self._rank()
        return True

    def _rank(self) -> None:
        for shape_queue in self.all_shapes():
            shape_queue.rank(self.order)
            self._entries.update((entry[1].id, entry) for entry in shape_queue)

    def add(self, job: Waiting, *, slotted: bool) -> None:
        """Put a job in, unless it has no slot and its place is beyond the part that is in memory."""
        if not slotted and job.gpu_type in self.ends and job.key > self._last_of(job.gpu_type):
            return
        if slotted:
            self.slotted.add(job.id)
        self.owners.add(job.owner)
        if job.promised_at is not None:
            self.promises[job.id] = job.promised_at
        self.arrivals[job.id] = job
        self._put_in((self.order(job), job, length_micros(job.length)))

    def refill(self, gpu_type: str | None, jobs: Sequence[Waiting], *, complete: bool) -> None:
        """Note that the next jobs of one requested type follow; `complete` says that there are none after them."""
        if complete:
            self.ends.pop(gpu_type, None)
        elif jobs:
            last = max(job.key for job in jobs)
            end = self.ends.get(gpu_type)
            self.ends[gpu_type] = last if end is None else max(last, end)

    def _put_in(self, entry: Entry) -> None:
        job = entry[1]
        shapes = self.shapes.setdefault(job.gpu_type, {})
        kind = (job.shape, job.id in self.slotted, job.id in self.held, job.preemptible)
        shape_queue = shapes.get(kind)
        if shape_queue is None:
            shape_queue = shapes[kind] = ShapeQueue(job.gpu_type, kind)
        shape_queue.add(entry)
        self.jobs[job.id] = job
        self._entries[job.id] = entry
        self._queues[job.id] = shape_queue

    def remove(self, job: Waiting) -> None:
        """Take a job out that is in."""
        self._take_out(job)
        for known in (self.jobs, self._entries, self._queues):
            del known[job.id]
        self.arrivals.pop(job.id, None)
        self.promises.pop(job.id, None)
        for marked in (self.slotted, self.held, self.barred):
            marked.discard(job.id)

    def _take_out(self, job: Waiting) -> Entry:
        entry, shape_queue = self._entries[job.id], self._queues[job.id]
        shape_queue.remove(entry)
        if not shape_queue:
            shapes = self.shapes[job.gpu_type]
            del shapes[shape_queue.kind]
            if not shapes:
                del self.shapes[job.gpu_type]
        return entry

    def _mark(self, job: Waiting, marked: set[str]) -> None:
        entry = self._take_out(job)
        marked.add(job.id)
        self._put_in(entry)

    def _unmark(self, job: Waiting, marked: set[str]) -> None:
        entry = self._take_out(job)
        marked.discard(job.id)
        self._put_in(entry)
        self.arrivals[job.id] = job

    def give_slot(self, job: Waiting) -> None:
        """Note that a job has a slot now."""
        if job.id not in self.slotted:
            self.arrivals.pop(job.id, None)
            self._mark(job, self.slotted)

    def take_slot(self, job: Waiting) -> None:
        """Note that a job has no slot any more; it is considered again like one that arrived."""
        if job.id in self.slotted:
            self._unmark(job, self.slotted)

    def take_arrivals(self) -> set[str | None]:
        """The requested types of all arrivals; a pass considers them now."""
        arrived = {job.gpu_type for job in self.arrivals.values()}
        self.arrivals.clear()
        return arrived

    def hold_back(self, job: Waiting) -> None:
        """Hold back a job that a quota does not let start now."""
        if job.id not in self.held:
            self._mark(job, self.held)

    def bar(self, job: Waiting) -> None:
        """Note that there is no time at which a job could start: `hold_barred` holds it back."""
        self.barred.add(job.id)

    def hold_barred(self) -> None:
        """Hold back all jobs that are barred."""
        for job_id in self.barred - self.held:
            self.hold_back(self.jobs[job_id])

    def release_all(self) -> None:
        """Release all jobs that were held back."""
        self.barred.clear()
        for job in [entry[1] for held_queue in self._held_queues() for entry in held_queue]:
            self._unmark(job, self.held)

    def release_some(self, limit: int) -> None:
        """Release so many held-back jobs that have no slot and are not barred.

        The next call goes on behind them, and begins anew after the last: every job has its turn.
        """
        queues = [
            held_queue.after(self._released_after) for held_queue in self._held_queues() if not held_queue.slotted
        ]
        some = list(islice((entry for entry in merge(*queues) if entry[1].id not in self.barred), limit))
        self._released_after = some[-1][0] if len(some) == limit else None
        for entry in some:
            self._unmark(entry[1], self.held)

    def _held_queues(self) -> list[ShapeQueue]:
        return [shape_queue for shape_queue in self.all_shapes() if shape_queue.held]

    def all_shapes(self) -> list[ShapeQueue]:
        """The queues of all shapes."""
        return [shape_queue for shapes in self.shapes.values() for shape_queue in shapes.values()]

    def all_of(self, gpu_type: str | None) -> Collection[ShapeQueue]:
        """The queues by shape of one requested type."""
        return self.shapes.get(gpu_type, {}).values()

    def of_type(self, gpu_type: str | None) -> list[ShapeQueue]:
        """The queues by shape of one requested type, without jobs that are held back."""
        return [shape_queue for shape_queue in self.all_of(gpu_type) if not shape_queue.held]

    def in_order(self) -> Iterator[Waiting]:
        """All jobs in queue order."""
        for entry in merge(*self.all_shapes()):
            yield entry[1]

    def _last_of(self, gpu_type: str | None) -> Key:
        end = self.ends[gpu_type]
        # Nothing is known of this queue, so a new job may come before any other.
        return end if end is not None else (-(2**63), 0)

    def may_be_next(self, job: Waiting, gpu_type: str | None) -> bool:
        """Whether no job outside memory that asks for this type can be ahead of a job."""
        if job.preemptible:  # it goes after all others, wherever it stands in the part that is in memory
            return not {gpu_type, job.gpu_type} & self.ends.keys()
        return gpu_type not in self.ends or job.key <= self._last_of(gpu_type)

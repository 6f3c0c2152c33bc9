"""Start decisions: in queue order in each pool, with backfill that delays no job with a promised start.

A pool is all GPUs of one type. Jobs are looked at in queue order, all requested types merged. A job starts where its
whole length fits beside everything in the calendar: what runs, what is booked, and the slots of all others (see
`slot_decisions`); its own slot does not stand in its way. When its slot has come it starts there.

Until a job has a slot, this holds: the first of them that can't start in a pool is the pool's head and gets a *shadow*:
the concrete GPUs and time of its earliest fit. A later job may start at once only on other GPUs, or where it ends
before the shadow. A job that asks for any type takes the type where it fits best; where it fits nowhere, it is the head
of that pool, of those that have none yet, where it could start first. A job that the inventory could never run heads no
pool.

Jobs over their owner's quota are held back: they head no pool, and are looked at no more until something of their
owner's is given back, or their slot comes. Preemptible jobs head no pool, either: they come last, and start where GPUs
are free for as long as they keep them for sure.

A pass over a queue is made only when something was freed, a time was reached or a job came in before a head; a job
that just arrived behind the heads is tried alone against their shadows.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import datetime
from heapq import heapify, heappop, heapreplace

from reservation_core.domain.calendar import FOREVER, GpuCalendar, Row, length_micros, to_micros, to_moment
from reservation_core.domain.plan import Start, Waiting
from reservation_core.domain.planning.chains.chain_links import IN_TIME
from reservation_core.domain.planning.planning_picture import Picture
from reservation_core.domain.planning.waiting_queue import Order, ShapeQueue
from reservation_core.domain.pools.pool import Cost, Pool, Spots

SCAN_DEPTH = 1000
"""How many waiting jobs of one requested type that can't start a pass looks at before it gives up on the rest."""


def plan_starts(picture: Picture, now: datetime, limit: int) -> list[Start]:
    """Decide which jobs start now, at most `limit`; the decision is applied to the picture at once.

    Called again at the same time it answers the rest, and nothing when all is decided.
    """
    at = picture.catch_up(now)
    pools, queue = picture.pools, picture.queue
    if not queue.jobs:
        pools.end_pass()
    if not (pools.dirty or queue.arrivals):
        return []
    pools.set_demand(queue)
    decisions = _Decisions(picture, now if to_micros(now) == at else to_moment(at), limit)
    while not decisions.full:
        if pools.dirty:
            decisions.pass_queue()
        elif queue.arrivals:
            decisions.try_arrivals()
        else:
            break
    return decisions.starts


@dataclass(slots=True)
class _Cursor:
    """How far a pass has come in one shape's queue. Jobs of `hopeless` length or longer can't start in this pass."""

    queue: ShapeQueue
    pools: list[Pool]
    index: int
    hopeless: int = FOREVER
    passed: Order | None = None

    def find(self) -> None:
        """Find the place in the queue again after a job has left it."""
        self.index = self.queue.first_after(self.passed)

    @property
    def over(self) -> bool:
        return self.index >= len(self.queue.entries)


class _Decisions:
    """One call of `plan_starts`."""

    def __init__(self, picture: Picture, now: datetime, limit: int) -> None:
        self._picture = picture
        self._ledger, self._queue = picture.ledger, picture.queue
        self._pools, self._heads = picture.pools, picture.heads
        self._now = now
        self._at = picture.at
        self._limit = limit
        self.starts: list[Start] = []
        self._backfilled: set[str] = set()
        self._given_back: set[str] = set()
        self._over_quota: set[str] = set()
        self._passed_over: defaultdict[str | None, int] = defaultdict(int)

    @property
    def full(self) -> bool:
        return len(self.starts) >= self._limit

    def pass_queue(self) -> None:
        """Go through the queues of the pools in which something changed, from the start."""
        reach = self._pools.reach
        any_type = [queue for queue in self._queue.of_type(None) if reach.pools_for(None, queue.shape)]
        # A job that asks for any type ties the pools together: where it goes depends on all of them. And where a job
        # arrived meanwhile, it is looked at in the same pass, so that all start in queue order.
        types = self._pools.begin_pass(self._queue.take_arrivals(), tied=bool(any_type))
        self._heads.begin_pass(types)
        queues = [queue for gpu_type in sorted(types) for queue in self._queue.of_type(gpu_type)] + any_type
        cursors = [
            _Cursor(queue, pools, queue.first)
            for queue in queues
            if (pools := reach.pools_for(queue.gpu_type, queue.shape))
        ]
        entries: list[tuple[Order, int, _Cursor | Waiting]] = [
            (cursor.queue.entries[cursor.index][0], number, cursor) for number, cursor in enumerate(cursors)
        ]
        entries += [(self._queue.order(job), -number, job) for number, job in enumerate(self._own_way(types), 1)]
        heapify(entries)
        self._passed_over.clear()
        while entries and not self.full:
            place, number, item = entries[0]
            if isinstance(item, Waiting):
                heappop(entries)
                if self._consider_own_way(item):
                    for cursor in cursors:
                        cursor.find()
            elif item.over:
                heappop(entries)
            elif place != item.queue.entries[item.index][0] or self._step(item):
                heapreplace(entries, (item.queue.entries[item.index][0], number, item))
            else:
                heappop(entries)
        if not entries:
            self._pools.end_pass(self._given_back)
            self._given_back.clear()
            self._settle()

    def _step(self, cursor: _Cursor) -> bool:
        """Look at one job; false when no job after it in its shape's queue can start in this pass."""
        queue = cursor.queue
        _, job, length = queue.entries[cursor.index]
        pools = self._in_reach(job, cursor.pools)
        if not pools:
            return False
        if length < cursor.hopeless:
            at_front = cursor.index == queue.first
            if self._consider(job, length, pools) or self._hold_back(job):
                cursor.index = queue.first if at_front else cursor.index
                return cursor.index < len(queue.entries)
            if queue.slotted or all(pool.gpu_type in self._heads for pool in pools):
                cursor.hopeless = length if self._pools.has_room(job, pools) else 0
            elif not any(pool.free for pool in pools):
                return False
        cursor.passed = queue.entries[cursor.index][0]
        cursor.index += 1
        self._passed_over[queue.gpu_type] += 1
        return (
            cursor.hopeless > 0
            and cursor.index < len(queue.entries)
            and self._passed_over[queue.gpu_type] < SCAN_DEPTH
            and cursor.hopeless > queue.shortest
        )

    def _own_way(self, types: set[str]) -> list[Waiting]:
        """Jobs that may start where others may not: their slot has come, or comes next on a GPU that is free."""
        ids = self._ledger.due.union(*(self._pools.by_type[gpu_type].near for gpu_type in types))
        return [self._queue.jobs[reservation_id] for reservation_id in ids if reservation_id in self._queue.jobs]

    def _consider_own_way(self, job: Waiting) -> bool:
        """Start a job in its slot, or elsewhere as if it had none. True when it starts."""
        if job.id not in self._queue.jobs:
            return False
        due = job.id in self._ledger.due
        if due and self._start_in_slot(job):
            return True
        pools = self._in_reach(job, self._pools.for_job(job))
        if not (due or self._pools.has_room(job, pools)):
            return False
        rows = self._ledger.by_reservation[job.id]
        self._set_slot_rows(job, ())
        if self._consider(job, length_micros(job.length), pools):
            self._pools.mark_changed([gpu_id for gpu_id, _ in rows], freed=True)
            self._refresh()
            return True
        self._set_slot_rows(job, rows)
        return False

    def _set_slot_rows(self, job: Waiting, rows: tuple[tuple[int, Row], ...]) -> None:
        """Take a slot out of the calendar, or put it back, with nothing else decided."""
        self._pools.refresh_gpus(self._ledger.set_rows(job.id, rows, planned=bool(rows)), self._at, back=bool(rows))

    def _refresh(self) -> None:
        """Bring the pools up to date. GPUs were given back, so jobs ahead in the queue are considered again."""
        self._given_back.update(self._pools.refresh(self._at))

    def _start_in_slot(self, job: Waiting) -> bool:
        """Start a job whose slot has come, if no pod is left on its GPUs."""
        rows = self._ledger.by_reservation[job.id]
        pool = self._pools.pool_of(job.id)
        calendars = [self._ledger.calendars[gpu_id] for gpu_id, _ in rows]
        slot_end = self._ledger.slots[job.id][1]
        if pool is None or slot_end <= self._at or any(calendar.held_by_others(job.id) for calendar in calendars):
            return False
        # The next use of the GPUs may be far off: then being late costs the job nothing.
        following = [start for calendar in calendars for start, _, _, other in calendar.rows if other != job.id]
        next_use = min((start for start in following if start > self._at), default=FOREVER)
        end = min(self._at + length_micros(job.length), next_use, self._picture.until)
        if self._is_ended_for_dependant(job, next_use, calendars):
            return False
        # The next that its owner was promised may begin on other GPUs as this slot ends.
        if end > slot_end and not self._picture.within_quotas(job, pool.gpu_type, self._at, end - self._at):
            end = slot_end
        positions = self._pools.positions_of(rows)
        shares = self._pools.shares
        if not shares.fits_on(job, pool, positions, self._at, end):
            end = slot_end
            if not shares.fits_on(job, pool, positions, self._at, end):
                return False
        masks: Counter[int] = Counter()
        for gpu_id, _ in rows:
            node = pool.nodes[self._pools.position_of(gpu_id)]
            masks[node.position] += next(card.bit for card in node.cards if card.placed.gpu_id == gpu_id)
        self._set_slot_rows(job, ())
        self._start(job, pool, [(pool.nodes[position], masks[position]) for position in sorted(masks)], end)
        return True

    def _is_ended_for_dependant(self, job: Waiting, next_use: int, calendars: list[GpuCalendar]) -> bool:
        """Whether a late job would be ended for the slot of one that waits for its end: that slot is moved first."""
        start = self._ledger.slots[job.id][0]
        enough = self._at + length_micros(job.length) - IN_TIME
        if self._at <= start + IN_TIME or next_use >= enough:
            return False
        next_jobs = {row[3] for calendar in calendars for row in calendar.rows if self._at < row[0] < enough}
        return any(self._picture.waits_for_end(other, job.id) for other in next_jobs & self._picture.dependants.keys())

    def _start(self, job: Waiting, pool: Pool, spots: Spots, end: int) -> None:
        """Write a start into the picture."""
        if job.id in self._ledger.slots:
            self._picture.clear_slot_rows(job.id)
            self._refresh()
        row = (self._at, end, True, job.id)
        placed = pool.occupy(spots, row)
        for node, _ in spots:
            self._pools.profiles[pool.gpu_type].forget(node.position, freed=False)
        self._ledger.book(job.id, placed, row, planned=False, share=job.share)
        self._pools.count_pieces(self._ledger.allocated(job.id), 1)
        asker = self._picture.claim(job, pool.gpu_type, self._at, end)
        if job.preemptible:
            self._ledger.preemptible.add(job.id)
        had_slot = job.id in self._queue.slotted
        self._queue.remove(job)
        if pool.gpu_type in self._heads:
            self._backfilled.add(pool.gpu_type)
        span = self._now, to_moment(end)
        self.starts.append(Start(job.id, *span, placed, job.version, job.booking_id, had_slot, asker))

    def _in_reach(self, job: Waiting, pools: list[Pool]) -> list[Pool]:
        """Pools in which no job outside memory can be ahead of this job in the queue."""
        queue = self._queue
        if not queue.ends:
            return pools
        if job.gpu_type is not None:
            return pools if queue.may_be_next(job, None) else []
        return [pool for pool in pools if queue.may_be_next(job, pool.gpu_type)]

    def try_arrivals(self) -> None:
        """Try jobs that came since the last pass, when no job ahead of them can have become able to start."""
        order = self._queue.order
        for job in sorted(self._queue.arrivals.values(), key=order):
            if self.full:
                break
            del self._queue.arrivals[job.id]
            pools = self._in_reach(job, self._pools.for_job(job))
            if not pools:
                continue
            types = {pool.gpu_type for pool in pools}
            if any(
                order(head) > order(job) and (gpu_type in types or head.gpu_type is None)
                for gpu_type, head in self._heads.jobs.items()
            ):
                for gpu_type in types:
                    self._pools.plan_again(gpu_type)
                break
            if not self._consider(job, length_micros(job.length), pools):
                self._hold_back(job)
        self._settle()

    def _hold_back(self, job: Waiting) -> bool:
        """Set a job aside that was found to be over a quota; false when it was not."""
        if job.id not in self._over_quota:
            return False
        self._picture.hold_back(job)
        return True

    def _consider(self, job: Waiting, length: int, pools: list[Pool]) -> bool:
        """Start a job where it fits best, or else make it the head of a pool that has none. True when it starts."""
        end = min(self._at + length, self._picture.until)
        within = [pool for pool in pools if self._picture.within_quotas(job, pool.gpu_type, self._at, length)]
        best: tuple[Cost, Pool, Spots] | None = None
        for pool in within:
            avoided = self._pools.reach.avoided(pool, job)
            if pool.has_room(job.gpus, job.nodes, avoided.never):
                shadow = self._heads.shadow(pool, self._at)
                asks = shadow is not None and self._heads.asks(pool.gpu_type)
                avoided = self._pools.avoided(job, pool, self._at, end, shadow, head_asks=asks)
                found = pool.place(job.gpus, job.nodes, end, shadow, avoided)
                if found is not None and (best is None or found[0] < best[0]):
                    best = (found[0], pool, found[1])
        if best is not None:
            self._start(job, best[1], best[2], end)
            return True
        if not within:
            self._over_quota.add(job.id)
        elif job.id not in self._queue.slotted and not job.preemptible:
            self._heads.choose(job, pools, self._at)
        return False

    def _settle(self) -> None:
        self._heads.settle(self._backfilled, self._at)
        self._backfilled.clear()

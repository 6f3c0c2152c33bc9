"""Start decisions: first come, first served in each pool, with backfill that delays no job with a promised start.

A pool is all GPUs of one type. Jobs are looked at in the order of the line, all requested types merged. A job starts
where its whole length fits beside everything in the calendar: what runs, what is booked, and the slots of all others
(see `slot_decisions`); its own slot does not stand in its way. When its slot has come it starts there.

Until a job has a slot, this holds: the first of them that can't start in a pool is the pool's head and gets a *shadow*:
the concrete cards and time of its earliest fit. A later job may start at once only on other cards, or where it ends
before the shadow. A job that asks for any type takes the type where it fits best; where it fits nowhere, it is the head
of that pool, of those that have none yet, where it could start first. A job that the inventory could never run is
nobody's head.

Jobs over their owner's quota are held back: they are nobody's head, and looked at no more until something of their
owner's is given back, or their slot comes.

A pass over a line is made only when something was freed, a time was reached or somebody came in before a head; a job
that just arrived behind the heads is tried alone against their shadows.
"""

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime
from heapq import heapify, heappop, heapreplace
from itertools import islice

from reservation_core.domain.calendar import FOREVER, OVERRUN, Row, length_micros, to_micros, to_moment
from reservation_core.domain.plan import Asker, Start, WaitEstimate, Waiting
from reservation_core.domain.planning.planning_picture import Head
from reservation_core.domain.planning.slot_decisions import SlotPlanning
from reservation_core.domain.planning.waiting_queue import Order, ShapeLine
from reservation_core.domain.pools.forecast import forecast
from reservation_core.domain.pools.pool import Cost, Pool, Shadow, Spots

SCAN_DEPTH = 1000
"""How many waiting jobs of one requested type that can't start a pass looks at before it gives up on the rest."""


@dataclass(slots=True)
class _Cursor:
    """How far a pass has come in one shape's line. Jobs of `hopeless` length or longer can't start in this pass."""

    line: ShapeLine
    pools: list[Pool]
    index: int
    hopeless: int = FOREVER
    passed: Order | None = None

    def find(self) -> None:
        """Find the place in the queue again after a job has left it."""
        self.index = self.line.first if self.passed is None else self.line.first_after(self.passed)

    @property
    def over(self) -> bool:
        return self.index >= len(self.line.entries)


@dataclass(slots=True)
class _Round:
    """One call of `plan_starts`."""

    now: datetime
    at: int
    limit: int
    starts: list[Start] = field(default_factory=list)
    backfilled: set[str] = field(default_factory=set)
    given_back: set[str] = field(default_factory=set)
    over_quota: set[str] = field(default_factory=set)

    @property
    def full(self) -> bool:
        return len(self.starts) >= self.limit


class PlanningState(SlotPlanning):
    """The planner's picture with its start decisions; see `Picture` for its parts."""

    def plan_starts(self, now: datetime, limit: int) -> list[Start]:
        """Decide which jobs start now, at most `limit`; the decision is applied to this picture at once.

        Called again at the same time it answers the rest, and nothing when all is decided.
        """
        at = self._catch_up(now)
        this = _Round(now if to_micros(now) == at else to_moment(at), at, limit)
        if self._dirty or self._arrivals:
            self._note_demand()
        while not this.full:
            if self._dirty:
                self._pass(this)
            elif self._arrivals:
                self._plan_arrivals(this)
            else:
                break
        return this.starts

    def _pass(self, this: _Round) -> None:
        """Go through the lines of the pools in which something changed, from the start."""
        any_type = [line for line in self._line.shape_lines(None) if self._reach.pools_for(None, line.shape)]
        # A job that asks for any type ties the pools together: where it goes depends on all of them. And where somebody
        # arrived meanwhile, they are looked at in the same pass, so that all start in the order of the line.
        arrived = {job.gpu_type for job in self._arrivals.values()}
        types = {gpu_type for gpu_type in self._pools if any_type or gpu_type in self._dirty or gpu_type in arrived}
        self._dirty = types
        self._arrivals = {}
        last_heads = {gpu_type: self._heads.pop(gpu_type) for gpu_type in types if gpu_type in self._heads}
        shape_lines = [line for gpu_type in sorted(types) for line in self._line.shape_lines(gpu_type)] + any_type
        cursors = [
            _Cursor(line, pools, line.first)
            for line in shape_lines
            if (pools := self._reach.pools_for(line.gpu_type, line.shape))
        ]
        entries: list[tuple[int, int, int, int, _Cursor | Waiting]] = [
            (*cursor.line.entries[cursor.index][:3], number, cursor) for number, cursor in enumerate(cursors)
        ]
        entries += [(*self._line.order(job), -number, job) for number, job in enumerate(self._own_way(types), 1)]
        heapify(entries)
        passed_over: Counter[str | None] = Counter()
        while entries and not this.full:
            *place, _, item = entries[0]
            if isinstance(item, Waiting):
                heappop(entries)
                if self._consider_own_way(item, this):
                    for cursor in cursors:
                        cursor.find()
            elif item.over:
                heappop(entries)
            elif tuple(place) != item.line.entries[item.index][:3] or self._step(item, this, passed_over, last_heads):
                heapreplace(entries, (*item.line.entries[item.index][:3], entries[0][3], item))
            else:
                heappop(entries)
        if not entries:
            self._dirty, this.given_back = this.given_back, set()
            self._settle(this)

    def _step(
        self, cursor: _Cursor, this: _Round, passed_over: Counter[str | None], last_heads: dict[str, Head]
    ) -> bool:
        """Look at one job; false when nobody after it in its shape's line can start in this pass."""
        line = cursor.line
        *_, job, length = line.entries[cursor.index]
        pools = self._in_reach(job, cursor.pools)
        if not pools:
            return False
        if length < cursor.hopeless:
            at_front = cursor.index == line.first
            if self._consider(job, length, pools, this, last_heads) or self._hold_back(job, this):
                cursor.index = line.first if at_front else cursor.index
                return cursor.index < len(line.entries)
            roomy = any(pool.has_room(job.gpus, job.nodes, self._reach.avoided(pool, job).never) for pool in pools)
            if line.slotted or all(pool.gpu_type in self._heads for pool in pools):
                cursor.hopeless = length if roomy else 0
            elif not any(pool.free for pool in pools):
                return False
        cursor.passed = line.entries[cursor.index][:3]
        cursor.index += 1
        passed_over[line.gpu_type] += 1
        return (
            cursor.hopeless > 0
            and cursor.index < len(line.entries)
            and passed_over[line.gpu_type] < SCAN_DEPTH
            and cursor.hopeless > line.shortest
        )

    def _own_way(self, types: set[str]) -> list[Waiting]:
        """Jobs that may start where others may not: their slot has come, or comes next on a card that is free."""
        ids = self._ledger.due.union(*(self._pools[gpu_type].near for gpu_type in types))
        return [self._line.jobs[reservation_id] for reservation_id in ids if reservation_id in self._line.jobs]

    def _consider_own_way(self, job: Waiting, this: _Round) -> bool:
        """Start a job in its slot, or elsewhere as if it had none. True when it starts."""
        if job.id not in self._line.jobs:
            return False
        due = job.id in self._ledger.due
        if due and self._start_in_slot(job, this):
            return True
        pools = self._in_reach(job, self._reach.pools_for(job.gpu_type, job.shape))
        roomy = any(pool.has_room(job.gpus, job.nodes, self._reach.avoided(pool, job).never) for pool in pools)
        if not (roomy or due):
            return False
        rows = self._ledger.by_reservation[job.id]
        self._set_slot_rows(job, (), this.at)
        if self._consider(job, length_micros(job.length), pools, this, {}):
            self._mark_changed([gpu_id for gpu_id, _ in rows], freed=True)
            self._refresh(this)
            return True
        self._set_slot_rows(job, rows, this.at)
        return False

    def _set_slot_rows(self, job: Waiting, rows: tuple[tuple[int, Row], ...], at: int) -> None:
        """Put a slot aside, or back, with nothing else decided."""
        for gpu_id in self._ledger.set_rows(job.id, rows, planned=bool(rows)):
            where = self._where.get(gpu_id)
            if where is not None:
                where[0].stale.add(where[1])
        for pool in self._pools.values():
            pool.refresh(at)

    def _refresh(self, this: _Round) -> None:
        """Have jobs ahead of it in the queue looked at again, since cards were given back."""
        for pool in self._pools.values():
            if pool.stale:
                this.given_back.add(pool.gpu_type)
                pool.refresh(this.at)

    def _start_in_slot(self, job: Waiting, this: _Round) -> bool:
        """Start a job whose slot has come, if no pod is left on its cards."""
        rows = self._ledger.by_reservation[job.id]
        pool = self._slot_pool(job.id)
        calendars = [self._ledger.calendars[gpu_id] for gpu_id, _ in rows]
        slot_end = self._ledger.slots[job.id][1]
        if pool is None or slot_end <= this.at or any(calendar.held_by_others(job.id) for calendar in calendars):
            return False
        # The next use of the cards may be far off: then being late costs the job nothing.
        following = [start for calendar in calendars for start, _, _, other in calendar.rows if other != job.id]
        end = min(
            this.at + length_micros(job.length), min((start for start in following if start > this.at), default=FOREVER)
        )
        # The next that its owner was promised may begin on other cards as this slot ends.
        if end > slot_end and not self._within_quotas(job, pool, this.at, end - this.at):
            end = slot_end
        masks: Counter[int] = Counter()
        for gpu_id, _ in rows:
            node = pool.nodes[self._where[gpu_id][1]]
            masks[node.position] += next(card.bit for card in node.cards if card.placed.gpu_id == gpu_id)
        self._set_slot_rows(job, (), this.at)
        self._start(job, pool, [(pool.nodes[position], masks[position]) for position in sorted(masks)], end, this)
        return True

    def _start(self, job: Waiting, pool: Pool, spots: Spots, end: int, this: _Round) -> None:
        """Write a start into the picture."""
        if job.id in self._ledger.slots:
            self._mark_changed(self._ledger.set_rows(job.id, (), planned=False), freed=True)
            self._refresh(this)
        row = (this.at, end, True, job.id)
        placed = pool.occupy(spots, row)
        for node, _ in spots:
            self._profiles[pool.gpu_type].forget(node.position, freed=False)
        self._ledger.book(job.id, placed, row)
        self._count_pieces(job.id, 1)
        asker = self._note_claim(job, pool.gpu_type, this.at, end)
        had_slot = job.id in self._line.slotted
        self._line.remove(job.id)
        if pool.gpu_type in self._heads:
            this.backfilled.add(pool.gpu_type)
        span = this.now, to_moment(end)
        this.starts.append(Start(job.id, *span, placed, job.version, job.booking_id, had_slot, asker))

    def _in_reach(self, job: Waiting, pools: list[Pool]) -> list[Pool]:
        """Pools in which no job outside memory can be ahead of this job in the queue."""
        if not self._line.ends:
            return pools
        if job.gpu_type is not None:
            horizon = self._line.horizon(None)
            return pools if horizon is None or job.key <= horizon else []
        horizons = {pool.gpu_type: self._line.horizon(pool.gpu_type) for pool in pools}
        return [pool for pool in pools if (end := horizons[pool.gpu_type]) is None or job.key <= end]

    def _plan_arrivals(self, this: _Round) -> None:
        """Try jobs that came since the last pass, when no job ahead of them can have become able to start."""
        for job in sorted(self._arrivals.values(), key=self._line.order):
            if this.full:
                break
            del self._arrivals[job.id]
            pools = self._in_reach(job, self._reach.pools_for(job.gpu_type, job.shape))
            if not pools:
                continue
            types = {pool.gpu_type for pool in pools}
            if any(
                self._line.order(head.job) > self._line.order(job) and (gpu_type in types or head.job.gpu_type is None)
                for gpu_type, head in self._heads.items()
            ):
                self._dirty |= types
                break
            if not self._consider(job, length_micros(job.length), pools, this, {}):
                self._hold_back(job, this)
        self._settle(this)

    def _hold_back(self, job: Waiting, this: _Round) -> bool:
        """Set a job aside that was found to be over a quota; false when it was not."""
        if job.id not in this.over_quota:
            return False
        self._line.hold_back(job.id)
        self._drop_head(job)
        return True

    def _consider(
        self, job: Waiting, length: int, pools: list[Pool], this: _Round, last_heads: dict[str, Head]
    ) -> bool:
        """Start a job where it fits best, or else make it the head of a pool that has none. True when it starts."""
        best: tuple[Cost, Pool, Spots] | None = None
        for pool in pools:
            avoided = self._reach.avoided(pool, job)
            if pool.has_room(job.gpus, job.nodes, avoided.never) and self._within_quotas(job, pool, this.at, length):
                found = pool.place(job.gpus, job.nodes, this.at + length, self._shadow(pool, this.at), avoided)
                if found is not None and (best is None or found[0] < best[0]):
                    best = (found[0], pool, found[1])
        if best is not None:
            self._start(job, best[1], best[2], this.at + length, this)
            return True
        if self._quotas is not None and not any(self._within_quotas(job, pool, this.at, length) for pool in pools):
            this.over_quota.add(job.id)
            return False
        if job.id in self._line.slotted:
            return False
        headless = [pool for pool in pools if pool.gpu_type not in self._heads]
        if len(headless) > 1:
            # Without a free card it does not matter which pool it heads; when one comes free all is decided anew.
            if not any(pool.free for pool in pools):
                return False
            self._note_overruns(headless, this.at)
            never = {pool.gpu_type: self._reach.avoided(pool, job).never for pool in headless}
            headless.sort(
                key=lambda pool: (
                    pool.earliest(job.gpus, job.nodes, length, this.at, never[pool.gpu_type]),
                    pool.gpu_type,
                )
            )
        for pool in headless[:1]:
            last = last_heads.get(pool.gpu_type)
            known = last is not None and last.job.id == job.id and last.version == pool.version
            self._heads[pool.gpu_type] = last if last is not None and known else Head(job, length)
        return False

    def _shadow(self, pool: Pool, at: int) -> Shadow | None:
        head = self._heads.get(pool.gpu_type)
        if head is None:
            return None
        if head.shadow is None:
            never = self._reach.avoided(pool, head.job).never
            head.shadow = pool.shadow(head.job.gpus, head.job.nodes, head.length, at, never)
            head.version = -1 if pool.overrun else pool.version
            self._note_overruns([pool], at)
        return head.shadow

    def _note_overruns(self, pools: list[Pool], at: int) -> None:
        """Move the guessed ends of pods that should have ended already, as time passes."""
        for pool in pools:
            if pool.overrun:
                self._look_again_at[pool.gpu_type] = at + OVERRUN

    def _settle(self, this: _Round) -> None:
        """Have later jobs looked at again where backfill has moved the earliest fit to other cards."""
        for gpu_type in this.backfilled:
            pool, head = self._pools[gpu_type], self._heads[gpu_type]
            before = head.shadow
            head.shadow = None
            if pool.free and self._shadow(pool, this.at) != before:
                self._dirty.add(gpu_type)
        this.backfilled.clear()

    def lacks_slots(self, limit: int) -> bool:
        """Whether any of the first `limit` in line could have a slot and has none."""
        return any(
            job.id not in self._line.slotted and self._reach.pools_for(job.gpu_type, job.shape)
            for job in islice(self._line.in_order(), limit)
        )

    def estimates(self, now: datetime, limit: int) -> list[WaitEstimate]:
        """Estimates for the first `limit` waiting jobs, in queue order."""
        at = self._catch_up(now)
        jobs = list(islice(self._line.in_order(), limit))
        slots = {
            job.id: (self._slot_type(job.id), self._ledger.slots[job.id][0])
            for job in jobs
            if job.id in self._ledger.slots
        }
        told = forecast(jobs, self._pools, self._capacity, self._reach, slots, at)
        return [self._told_of_quotas(estimate, at) if estimate.id in self._line.held else estimate for estimate in told]

    def _told_of_quotas(self, told: WaitEstimate, at: int) -> WaitEstimate:
        """Estimate for a job that is held back: which quota holds it, and no start before that quota allows one."""
        job = self._line.jobs[told.id]
        pools = self._reach.pools_for(job.gpu_type, job.shape)
        if self._quotas is None or not pools or told.estimated_start_at is None:
            return told
        askers = [Asker(job.owner, job.project, pool.gpu_type) for pool in pools]
        gpus, length = job.gpus * job.nodes, length_micros(job.length)
        reason = self._quotas.why_not(askers[0], gpus, length, at, job.id)
        if job.id not in self._ledger.slots:
            times = [self._quotas.earliest(asker, gpus, length, at, job.id) for asker in askers]
            first = min((time for time in times if time is not None), default=None)
            start = None if first is None else max(to_moment(first), told.estimated_start_at)
            told = replace(told, estimated_start_at=start)
        return told if reason is None else replace(told, reason=reason)

    def _slot_type(self, job_id: str) -> str:
        pool = self._slot_pool(job_id)
        return "" if pool is None else pool.gpu_type

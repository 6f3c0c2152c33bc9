"""Slots: the place in the calendar that each waiting job is given, and the promise that lies in it.

In the order of the line, who has no slot gets the earliest fit that disturbs nothing in the calendar, and at which
their quotas allow it beside all that they hold, have booked and were promised; its start is the promise. A slot is
moved to an earlier time when there is one, never to a later: a promised start stands until the job starts. Only where
its cards can't be had any more (they are lost, say) a slot is given up, and the job gets the earliest that is left,
with a word why.

A *walk* goes through those who have slots, after something was given back, a part of the line at a time.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from heapq import merge
from itertools import islice

from reservation_core.domain.calendar import FOREVER, Row, length_micros, to_moment
from reservation_core.domain.plan import Asker, LateStart, PlannedSlot, Waiting
from reservation_core.domain.planning.planning_picture import Picture
from reservation_core.domain.planning.waiting_queue import Entry, Order, ShapeLine
from reservation_core.domain.pools.node_timeline import Timeline
from reservation_core.domain.pools.pool import Pool
from reservation_core.domain.pools.pool_profile import Fit

UNUSABLE = "A GPU of its slot can't be used any more."
STILL_HELD = "Others still have GPUs of its slot."
LAPSED = "Its slot is over, and its GPUs were not free in it."


@dataclass(frozen=True, slots=True)
class SlotPlan:
    """Which slots to write; `more` says that the line goes on, or something was given back meanwhile."""

    slots: list[PlannedSlot]
    more: bool


class SlotPlanning(Picture):
    """Decides slots from the picture; a decision is applied to it at once."""

    _walk_after: Order | None = None
    _walking: frozenset[str] = frozenset()

    def plan_slots(
        self, now: datetime, promises: int, limit: int, enough: Callable[[], bool] = lambda: False
    ) -> SlotPlan:
        """Slots for those of the first `promises` in line who have none, and earlier ones for those who have.

        Looks at `limit` jobs at most, and at no more when `enough`, asked after each, says so. Nothing while somebody
        could still be started: they go first.
        """
        at = self._catch_up(now)
        if self._dirty or self._arrivals:
            return SlotPlan([], more=True)
        for profile in self._profiles.values():
            profile.refresh()
        decided: list[PlannedSlot] = []
        for job, because in self._slots_given_up(at):
            decided.append(self._find_slot(job, at, because))
        looked_at: list[Entry] = []
        over = True
        for entry in self._to_look_at(promises):
            if len(looked_at) == limit or (looked_at and enough()):
                over = False
                break
            if not self._is_ready(entry[3], at, enough):
                over = False
                break
            looked_at.append(entry)
            found = self._look_at(entry[3], at)
            if found is not None:
                decided.append(found)
        for slot in decided:
            if slot.id in self._line.jobs:
                self._set_slotted(self._line.jobs[slot.id], bool(slot.gpus))
        for job_id in self._line.barred - self._line.held:
            self._line.hold_back(job_id)
        self._go_on(looked_at, over=over)
        return SlotPlan(decided, more=not over or bool(self._walking or self._freed))

    def _is_ready(self, job: Waiting, at: int, enough: Callable[[], bool]) -> bool:
        """Whether enough is known of the nodes to look for a place; if not, some more is learnt."""
        for pool in self._reach.pools_for(job.gpu_type, job.shape):
            profile = self._profiles[pool.gpu_type]
            while not profile.learn(job.gpus, at):
                if enough():
                    return False
        return True

    def _look_at(self, job: Waiting, at: int) -> PlannedSlot | None:
        """A slot for one in line, or an earlier one; None where there is none."""
        slot = self._ledger.slots.get(job.id)
        if slot is None:
            found = self._find_slot(job, at, None)
            if found.gpus:
                return found
            # There is a place for everybody some day; so it is a quota that is too small for it.
            self._line.barred.add(job.id)
            return None
        return self._move_earlier(job, slot[0], at) if slot[0] > at else None

    def forget_slot(self, job_id: str) -> None:
        """A slot that was decided was not written: the job has been changed, or is being changed just now."""
        self._mark_changed(self._ledger.set_rows(job_id, (), planned=False), freed=True)
        self._drop_claim(job_id)
        job = self._line.jobs.get(job_id)
        if job is not None:
            self._set_slotted(job, False)

    def late(self, now: datetime) -> list[LateStart]:
        """Jobs that can't start although their slot has come, and the jobs in their way."""
        self._catch_up(now)
        found = []
        for reservation_id in sorted(self._ledger.due):
            if reservation_id in self._line.jobs:
                holders = {
                    other
                    for gpu_id, _ in self._ledger.by_reservation[reservation_id]
                    if (other := self._ledger.calendars[gpu_id].held_by_others(reservation_id)) is not None
                }
                if holders:
                    found.append(LateStart(reservation_id, STILL_HELD, tuple(sorted(holders))))
                elif self._slot_pool(reservation_id) is None:
                    found.append(LateStart(reservation_id, UNUSABLE))
                # Else its time has come in this very moment, and it is started next.
        return found

    def _slots_given_up(self, at: int) -> list[tuple[Waiting, str]]:
        """Waiting jobs whose slot can't be had any more; it is taken out of the calendar."""
        given_up = []
        if self._doubtful:
            self._doubtful = False
            unusable = [job_id for job_id in self._line.slotted if self._slot_pool(job_id) is None]
            given_up += [(self._line.jobs[job_id], UNUSABLE) for job_id in unusable]
        for job_id in self._ledger.due & self._line.slotted:
            if self._ledger.slots[job_id][1] <= at and self._slot_pool(job_id) is not None:
                given_up.append((self._line.jobs[job_id], LAPSED))
        given_up.sort(key=lambda dropped: self._line.order(dropped[0]))
        for job, _ in given_up:
            self._drop_slot(job)
        return given_up

    def _slot_pool(self, reservation_id: str) -> Pool | None:
        """The pool that has all cards of a slot; None when one of them is in none."""
        pool: Pool | None = None
        for gpu_id, _ in self._ledger.by_reservation[reservation_id]:
            where = self._where.get(gpu_id)
            if where is None:
                return None
            pool = where[0]
        return pool

    def _drop_slot(self, job: Waiting) -> None:
        self._drop_claim(job.id)
        self._mark_changed(self._ledger.set_rows(job.id, (), planned=False), freed=True)
        for pool in self._pools.values():
            pool.refresh(self._at)

    def _to_look_at(self, promises: int) -> Iterator[Entry]:
        """Jobs without a slot, and as far as something was given back jobs with one, in queue order."""
        if not self._walking and self._freed:
            self._walking, self._freed, self._walk_after = frozenset(self._freed), set(), None
        lines = [line for shapes in self._line.shapes.values() for line in shapes.values()]
        slotted = [line for line in lines if line.slotted]
        without: list[Iterator[Entry]] = [
            self._unpromised(line, slotted, promises)
            for line in lines
            if not line.slotted and self._reach.pools_for(line.gpu_type, line.shape)
        ]
        walked = [self._rest_of(line) for line in slotted if self._is_walked(line)]
        return merge(*without, *walked)

    def _unpromised(self, line: ShapeLine, slotted: list[ShapeLine], promises: int) -> Iterator[Entry]:
        """Those of a line whose turn it is to get a slot: `promises` in all, and who comes before one that has one."""
        room = promises - len(self._line.slotted)
        last = max((shape_line.entries[-1][:3] for shape_line in slotted), default=None)
        # A job that a quota would never let start is promised nothing, and takes nobody's turn.
        able = (entry for entry in line if entry[3].id not in self._line.barred)
        for number, entry in enumerate(able):
            if number >= room and (last is None or entry[:3] > last):
                return
            yield entry

    def _is_walked(self, line: ShapeLine) -> bool:
        pools = self._reach.pools_for(line.gpu_type, line.shape) if self._walking else []
        return any(pool.gpu_type in self._walking for pool in pools)

    def _rest_of(self, line: ShapeLine) -> Iterator[Entry]:
        first = line.first if self._walk_after is None else line.first_after(self._walk_after)
        return islice(line.entries, first, None)

    def _go_on(self, looked_at: list[Entry], *, over: bool) -> None:
        """Remember how far the walk has come."""
        if over:
            self._walking = frozenset()
        elif self._walking and looked_at:
            last = looked_at[-1][:3]
            self._walk_after = last if self._walk_after is None else max(last, self._walk_after)

    def _find_slot(self, job: Waiting, at: int, because: str | None) -> PlannedSlot:
        """The earliest fit for a job that is nowhere in the calendar."""
        best: tuple[int, str, Pool, Fit] | None = None
        length = _length(job)
        for pool in self._reach.pools_for(job.gpu_type, job.shape):
            fit = self._earliest(job, pool, length, at)
            if fit is not None and (best is None or (fit.start, pool.gpu_type) < best[:2]):
                best = (fit.start, pool.gpu_type, pool, fit)
        if best is None:
            moment = to_moment(at)
            return PlannedSlot(job.id, moment, moment, (), job.version, job.booking_id, because)
        return self._write(job, best[2], best[3], because)

    def _move_earlier(self, job: Waiting, start: int, at: int) -> PlannedSlot | None:
        """An earlier place for a job, with its own slot out of the way."""
        best: tuple[int, str, Pool, Fit] | None = None
        length = _length(job)
        own = self._slot_pool(job.id)
        for pool in self._reach.pools_for(job.gpu_type, job.shape):
            profile = self._profiles[pool.gpu_type]
            instead = {}
            if pool is own:
                positions = {self._where[gpu_id][1] for gpu_id, _ in self._ledger.by_reservation[job.id]}
                instead = {position: profile.without(position, job.id, at) for position in positions}
            fit = self._earliest(job, pool, length, at, before=start, instead=instead)
            if fit is not None and (best is None or (fit.start, pool.gpu_type) < best[:2]):
                best = (fit.start, pool.gpu_type, pool, fit)
        if best is None:
            return None
        # What it leaves behind is had by those after it in this walk, and by those before it in the next.
        self._mark_changed(self._ledger.set_rows(job.id, (), planned=False), freed=True)
        return self._write(job, best[2], best[3], None)

    def _earliest(
        self,
        job: Waiting,
        pool: Pool,
        length: int,
        at: int,
        *,
        before: int = FOREVER,
        instead: Mapping[int, Timeline] | None = None,
    ) -> Fit | None:
        """The earliest fit in a pool at a time at which the quotas of its owner allow it."""
        profile = self._profiles[pool.gpu_type]
        never = self._reach.avoided(pool, job).never
        quotas = self._quotas
        asker = Asker(job.owner, job.project, pool.gpu_type)
        if quotas is None or job.booking_id is not None or not quotas.binds(asker):
            return profile.earliest(job.gpus, job.nodes, length, at, never=never, before=before, instead=instead)
        gpus = job.gpus * job.nodes
        fit: Fit | None = None
        allowed = quotas.earliest(asker, gpus, length, at, job.id)
        while allowed is not None and allowed < before:
            if fit is not None and fit.start == allowed:
                return fit
            fit = profile.earliest(
                job.gpus, job.nodes, length, at, never=never, after=allowed, before=before, instead=instead
            )
            if fit is None:
                return None
            allowed = quotas.earliest(asker, gpus, length, fit.start, job.id)
        return None

    def _write(self, job: Waiting, pool: Pool, fit: Fit, because: str | None) -> PlannedSlot:
        start, end = fit.start, fit.start + _length(job)
        row: Row = (start, end, False, job.id)
        placed = [
            card.placed_at(rank)
            for rank, (node, mask) in enumerate(fit.spots)
            for card in node.cards
            if card.bit & mask
        ]
        rows = [(gpu.gpu_id, row) for gpu in placed]
        rows.sort()
        self._ledger.set_rows(job.id, tuple(rows), planned=True)
        self._profiles[pool.gpu_type].take(fit.spots, start, end)
        pool.stale.update([node.position for node, _ in fit.spots])
        if start <= self._at:
            self._dirty.add(pool.gpu_type)
        asker = self._note_claim(job, pool.gpu_type, start, end)
        span = to_moment(start), to_moment(end)
        return PlannedSlot(job.id, *span, tuple(placed), job.version, job.booking_id, because, asker)


def _length(job: Waiting) -> int:
    return length_micros(job.length)

"""Slots: the place in the calendar that each waiting job is given, and the promise that lies in it.

In queue order, a job without a slot gets the earliest fit that disturbs nothing in the calendar, and at which its
quotas allow it beside all that they count; its start is the promise (or with a slack so much later). A slot is moved to
an earlier time when there is one, and to a later only to make room, and no later than the promise (see `making_room`):
a promised start stands until the job starts. Only where its GPUs can't be had any more (they are lost, say) a slot is
given up, and the job gets the earliest that is left, with the reason.

A *walk* goes through jobs with a slot, after something was given back, a part of the queue at a time.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from heapq import merge
from itertools import islice

from reservation_core.domain.calendar import FOREVER, Row, length_micros, to_moment
from reservation_core.domain.plan import LateStart, PlannedSlot, Waiting
from reservation_core.domain.planning.making_room import RoomMaker, with_fewest_lost
from reservation_core.domain.planning.planning_picture import Picture
from reservation_core.domain.planning.waiting_queue import Entry, ShapeQueue
from reservation_core.domain.planning.walking.hopes import improvable
from reservation_core.domain.policy.quota_book import QuotaBook
from reservation_core.domain.pools.node_timeline import Timeline
from reservation_core.domain.pools.pool import Pool, write_row
from reservation_core.domain.pools.pool_profile import Fit

UNUSABLE = "A GPU of its slot can't be used any more."
STILL_HELD = "Others still have GPUs of its slot."
LAPSED = "Its slot is over, and its GPUs were not free in it."
USED = 0.4
"""After which part of its time a part of the work takes no other step: what a step takes at most must be left."""


@dataclass(frozen=True, slots=True)
class SlotPlan:
    """Which slots to write; `more` says that the queue goes on, or something was given back meanwhile."""

    slots: list[PlannedSlot]
    more: bool


def plan_slots(
    picture: Picture, now: datetime, promises: int, limit: int, enough: Callable[[], bool] = lambda: False
) -> SlotPlan:
    """Slots for those of the first `promises` in the queue without one, and earlier ones for jobs with one.

    While preemptible jobs have GPUs, the first of the queue gets a slot even without promises.

    The decision is applied to the picture at once. Looks at `limit` jobs at most, and at no more when `enough`, asked
    after each, says so. Nothing while a job could still be started: those go first.
    """
    at = picture.catch_up(now)
    pools, queue, walk = picture.pools, picture.queue, picture.walk
    if pools.dirty or queue.arrivals:
        return SlotPlan([], more=True)
    for profile in pools.profiles.values():
        profile.refresh()
    search = SlotSearch(picture, at)
    if picture.ledger.preemptible:  # they make room for those alone that have a place in the calendar
        promises = max(promises, 1)
    decided: list[PlannedSlot] = []
    for job, because in _give_up_slots(picture, at):
        decided.append(search.find_slot(job, because))
        picture.set_slotted(job, bool(decided[-1].gpus))
    if pools.freed and not walk.gpu_types:
        walk.begin(pools.take_freed())
    last: Entry | None = None
    over = True
    for planned, entry in enumerate(_jobs_to_plan(picture, promises, enough)):
        if walk.paused is entry or planned == limit or not search.is_ready(entry[1], enough):
            over = False
            break
        last = entry
        decided += search.plan_slot(entry[1])
        if enough():  # before the next job is looked for, which may take long
            over = False
            break
    # The last decision on a job stands, where it was made: quotas are asked about them in this order.
    last_of: dict[str, PlannedSlot] = {}
    for slot in decided:
        before = last_of.pop(slot.id, None)
        last_of[slot.id] = slot if before is None else replace(slot, because=slot.because or before.because)
    decided = list(last_of.values())
    for slot in decided:
        if slot.id in queue.jobs:
            picture.set_slotted(queue.jobs[slot.id], bool(slot.gpus))
    queue.hold_barred()
    walk.go_on(last, over=over)
    return SlotPlan(decided, more=not over or bool(walk.gpu_types or pools.freed))


def late_starts(picture: Picture, now: datetime) -> list[LateStart]:
    """Jobs that can't start although their slot has come, and the jobs in their way."""
    picture.catch_up(now)
    ledger = picture.ledger
    late = []
    for job_id in sorted(ledger.due & picture.queue.jobs.keys()):
        holders = {
            other
            for gpu_id, _ in ledger.by_reservation[job_id]
            if (other := ledger.calendars[gpu_id].held_by_others(job_id)) is not None
        }
        if holders:
            late.append(LateStart(job_id, STILL_HELD, tuple(sorted(holders))))
        elif picture.pools.pool_of(job_id) is None:
            late.append(LateStart(job_id, UNUSABLE))
        # Else its time has come in this very moment, and it is started next.
    return late


def lacks_slots(picture: Picture, limit: int) -> bool:
    """Whether any of the first `limit` in the queue could have a slot and has none."""
    queue = picture.queue
    first = islice(queue.in_order(), limit)
    return any(not (job.id in queue.slotted or job.preemptible) and picture.pools.for_job(job) for job in first)


def earliest_slot(picture: Picture, job: Waiting, now: datetime, after: int = -FOREVER) -> int | None:
    """The start of the slot that a job would get that is not in the queue, if all others kept theirs."""
    at = picture.catch_up(now)
    for profile in picture.pools.profiles.values():
        profile.refresh()
    best = SlotSearch(picture, at).best_fit(job, FOREVER, None, after)
    return None if best is None else best[1].start


def _give_up_slots(picture: Picture, at: int) -> list[tuple[Waiting, str]]:
    """Waiting jobs whose slot can't be had any more; it is taken out of the calendar."""
    queue, pools, ledger = picture.queue, picture.pools, picture.ledger
    given_up = [(queue.jobs[job_id], UNUSABLE) for job_id in pools.take_unusable(queue.slotted)]
    given_up += [
        (queue.jobs[job_id], LAPSED)
        for job_id in ledger.due & queue.slotted
        if ledger.slots[job_id][1] <= at and pools.pool_of(job_id) is not None
    ]
    given_up.sort(key=lambda dropped: queue.order(dropped[0]))
    for job, _ in given_up:
        picture.drop_slot(job.id)
        pools.refresh(at)
    return given_up


def _jobs_to_plan(picture: Picture, promises: int, enough: Callable[[], bool]) -> Iterator[Entry]:
    """Jobs without a slot, and as far as something was given back jobs with one, in queue order."""
    walk, reach = picture.walk, picture.pools.reach
    queues = picture.queue.all_shapes()
    slotted = [queue for queue in queues if queue.slotted]
    without = [
        _unpromised(picture, queue, slotted, promises)
        for queue in queues
        if not (queue.slotted or queue.preemptible) and reach.pools_for(queue.gpu_type, queue.shape)
    ]
    walked = [
        queue
        for queue in (slotted if walk.gpu_types else ())
        if not walk.gpu_types.isdisjoint(reach.types_for(queue.gpu_type, queue.shape))
    ]
    return merge(*without, improvable(picture, walked, enough))


def _unpromised(picture: Picture, queue: ShapeQueue, slotted: list[ShapeQueue], promises: int) -> Iterator[Entry]:
    """Jobs of a queue whose turn it is to get a slot: `promises` in all, and as many before one with a slot."""
    room = promises - len(picture.queue.slotted)
    last = max((shape_queue.entries[-1][0] for shape_queue in slotted), default=None)
    # A job that a quota would never let start is promised nothing, and takes no other's turn.
    able = (entry for entry in queue if entry[1].id not in picture.queue.barred)
    for number, entry in enumerate(able):
        if number >= room and (last is None or entry[0] > last or number >= room + promises):
            return
        yield entry


def no_slot(job: Waiting, at: int, because: str | None) -> PlannedSlot:
    """The decision that a job has no slot any more."""
    moment, follows = to_moment(at), job.needs is not None
    return PlannedSlot(job.id, moment, moment, (), job.version, job.booking_id, because, follows=follows)


class SlotSearch:
    """Finds places for jobs at one time, and writes them into the picture.

    A slot that is looked for `after` a time begins no earlier. `quotas` bind instead of the picture's, if given.
    """

    def __init__(self, picture: Picture, at: int, quotas: QuotaBook | None = None) -> None:
        self._picture = picture
        self._quotas = picture.quotas if quotas is None else quotas
        self._pools = picture.pools
        self._at = at

    def is_ready(self, job: Waiting, enough: Callable[[], bool]) -> bool:
        """Whether enough is known of the nodes to look for a place; if not, some more is learnt."""
        start, _ = self._picture.ledger.slots.get(job.id, (None, None))
        for pool in self._pools.for_job(job):
            profile = self._pools.profiles[pool.gpu_type]
            while not profile.learn(job.gpus, self._at):
                if enough():
                    return False
            if start is not None and job.nodes > 1:
                read = self._picture.walk.nodes_read_for(job.id)
                first = read.get(pool.gpu_type, 0)
                for position in profile.learn_windows(job.gpus, length_micros(job.length), start, self._at, first):
                    read[pool.gpu_type] = position + 1
                    if enough():
                        return False
        self._picture.walk.forget_nodes_read()
        return True

    def plan_slot(self, job: Waiting) -> list[PlannedSlot]:
        """A slot for a job in the queue, or an earlier one, and those of jobs that make room; none if there is none."""
        slot = self._picture.ledger.slots.get(job.id)
        if slot is not None:
            found = self.move_earlier(job, slot[0]) if slot[0] > self._at else None
        else:
            found = self.find_slot(job, None)
            if not found.gpus:
                # There is a place for every job some day; so a quota is too small for it, or what is left of a booking.
                self._picture.queue.bar(job)
                return []
        if self._picture.ledger.slots[job.id][0] > self._at:
            now = self._room_maker().start_now(job)
            if now:
                return now
        return [] if found is None else [found]

    def find_slot(self, job: Waiting, because: str | None, after: int = -FOREVER) -> PlannedSlot:
        """The earliest fit for a job that is nowhere in the calendar."""
        best = self.best_fit(job, self._picture.until, None, after)
        if best is None:
            return no_slot(job, self._at, because)
        return self._write(job, *best, because)

    def move_earlier(self, job: Waiting, start: int, after: int = -FOREVER) -> PlannedSlot | None:
        """An earlier place for a job, with its own slot out of the way."""
        best = self.best_fit(job, start, self._pools.pool_of(job.id), after)
        if best is None:
            return None
        # What it leaves behind is had by those after it in this walk, and by those before it in the next.
        self._picture.clear_slot_rows(job.id)
        return self._write(job, *best, None)

    def _room_maker(self) -> RoomMaker:
        """A new one each time: kept here, it would be a reference cycle, whose collection interrupts the planner."""
        return RoomMaker(
            self._picture,
            self._at,
            lambda job, before: self.best_fit(job, before, None),
            lambda job, pool, fit: self._write(job, pool, fit, None),
        )

    def best_fit(self, job: Waiting, before: int, own: Pool | None, after: int = -FOREVER) -> tuple[Pool, Fit] | None:
        """The earliest fit before a time in any pool, at equal times in the first.

        `own` is the pool with the job's slot, which does not stand in its way.
        """
        best: tuple[Pool, Fit] | None = None
        beside: Mapping[int, Timeline] = {}
        for pool in self._pools.for_job(job):
            instead: dict[int, Timeline] = {}
            if pool is own:
                profile = self._pools.profiles[pool.gpu_type]
                _, row, masks = self._pools.slot_of(job.id)
                instead = {position: profile.without(position, mask, row, self._at) for position, mask in masks.items()}
            shares = self._pools.shares
            bounded = shares.timelines(job, self._pools.profiles[pool.gpu_type], pool, self._at, instead)
            fit = self._earliest(job, pool, before, bounded, after)
            if fit is not None:
                best, before, beside = (pool, fit), fit.start, bounded
        if best is not None and self._picture.ledger.preemptible:
            pool, fit = best
            return pool, with_fewest_lost(self._picture, job, pool, fit, beside)
        return best

    def _earliest(
        self, job: Waiting, pool: Pool, before: int, instead: Mapping[int, Timeline], after: int
    ) -> Fit | None:
        """The earliest fit in a pool at a time at which the quotas of its owner allow it."""
        profile = self._pools.profiles[pool.gpu_type]
        never = self._pools.never(pool, job)
        length = length_micros(job.length)
        at = self._at
        quotas = self._quotas
        if quotas.is_empty or not quotas.binds(asker := job.asker(pool.gpu_type)):
            return profile.earliest(
                job.gpus, job.nodes, length, at, never=never, after=after, before=before, instead=instead
            )
        gpus = job.all_gpus
        fit: Fit | None = None
        allowed = quotas.earliest(asker, gpus, length, max(at, after), job.id)
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
        start, end = fit.start, min(fit.start + length_micros(job.length), self._picture.until)
        row: Row = (start, end, False, job.id)
        placed = write_row(fit.spots, row)
        self._picture.ledger.book(job.id, placed, row, planned=True, share=job.share)
        promised = self._picture.queue.promises.setdefault(job.id, start + self._picture.slack)
        self._pools.profiles[pool.gpu_type].take(fit.spots, start, end)
        pool.note_taken(fit.spots)
        if start <= self._at:
            self._pools.plan_again(pool.gpu_type)
        asker = self._picture.claim(job, pool.gpu_type, start, end)
        begin = to_moment(start)
        promised_at = to_moment(promised) if promised > start else begin
        follows = job.needs is not None
        return PlannedSlot(
            job.id, begin, to_moment(end), placed, job.version, job.booking_id, because, asker, promised_at, follows
        )

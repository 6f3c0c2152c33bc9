"""A dry run: the planner's own decision on one more job, on a picture that is made for it and then dropped.

The picture has the whole calendar and the jobs that still need a slot; of the jobs with one only as many as can be
looked at quickly, the last of the queue. The slots of the others stay as they are.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TypeVar

from reservation_core.domain.calendar import length_micros, to_micros, to_moment
from reservation_core.domain.cards.placement_policies import DEFAULT_POLICY, PlacementPolicy
from reservation_core.domain.jobs.smaller_requests import Size, lengths_up_to, sizes_up_to
from reservation_core.domain.plan import Commitment, PlannedSlot, PlanningSnapshot, Start, Waiting
from reservation_core.domain.planning.calendar_planning import CalendarPicture
from reservation_core.domain.planning.planning_picture import Picture
from reservation_core.domain.planning.predictions.start_predictor import Prediction, StartPredictor
from reservation_core.domain.planning.slot_decisions import earliest_slot
from reservation_core.domain.planning.standings import BY_ARRIVAL, Orders
from reservation_core.domain.policy.limits import Policy
from reservation_core.domain.policy.quota_book import QuotaBook
from reservation_core.domain.policy.quota_rulings import limits_starts
from reservation_core.domain.policy.rules import Holding
from reservation_core.domain.request_terms import CPU_TYPE, RequestChange

T = TypeVar("T")


class PlanTooShortError(Exception):
    """The job's time may be after that until which the calendar was read."""


_ALL = 2**31
_NOTICED = timedelta(minutes=1)
"""Less is no advice: times are shown in minutes."""
_ROUNDS = 20
"""The planner decides about a job at its first turn; more rounds only settle what it moves meanwhile."""


@dataclass(frozen=True, slots=True)
class PlanView:
    """What the planner decides on, at one time. `promises`: how many jobs of the snapshot may have a slot; `slack`: how
    much later than their first slot they are promised their start.

    `names` are those of owners whom quotas bind, `holdings` all that quotas count, `shares` the ranks of owners.
    `until`: all of the calendar before it is in the snapshot; None for all of it.
    `others` makes the waiting jobs of which the snapshot has the slot alone, and perhaps more: they count where a start
    is predicted. `estimates`: of how many jobs the planner predicts the start. `predicted` are such starts, where the
    job waits for others.
    """

    snapshot: PlanningSnapshot
    rules: Policy
    names: Mapping[int, str]
    holdings: Sequence[Holding]
    shares: Mapping[int, int]
    promises: int
    placement: PlacementPolicy = DEFAULT_POLICY
    slack: timedelta = timedelta(0)
    orders: Orders = BY_ARRIVAL
    others: Callable[[], Sequence[Waiting]] = tuple
    estimates: int = 0
    until: datetime | None = None
    predicted: Mapping[str, Prediction] = field(default_factory=dict)

    @property
    def gpu_types(self) -> list[str]:
        """The types of all GPUs."""
        return sorted({gpu.gpu_type for node in self.snapshot.nodes for gpu in node.gpus})

    def picture(self) -> CalendarPicture:
        """A new picture of it."""
        picture = CalendarPicture(self.snapshot, self.placement, self.slack)
        picture.set_shares(self.shares)
        picture.set_orders(self.orders)
        picture.common.set_quotas(QuotaBook(self.rules, self.names))
        picture.common.note_held(self.holdings)
        return picture


@dataclass(frozen=True, slots=True)
class SoonerJob:
    """A request that would start sooner, at `promised_at` at the latest; `duration` is without what starting takes."""

    change: RequestChange
    size: Size
    gpu_type: str | None
    duration: timedelta
    promised_at: datetime


class DryRun:
    """The planner's decision on a job: it starts now, or its slot is at `start`; None if it gets no time.

    `promised_at` is when it starts at the latest, `gpu_type` that of its GPUs. Raises PlanTooShortError.
    """

    def __init__(self, view: PlanView, job: Waiting, now: datetime) -> None:
        self._view = view
        self._job = job
        self._now = now
        self._picture = view.picture()
        self._own = self._picture.of(job)
        self._picture.set_reservation(job.id, job, ())
        decided = self._decided = self._decide()
        self.start = None if decided is None else decided.start
        self._require_all()
        self.promised_at = decided.promised_at if isinstance(decided, PlannedSlot) and self.start != now else self.start
        self.gpu_type = None if decided is None else self._own.pools.type_of(decided.gpus[0].gpu_id)
        self._is_held_back = job.id in self._own.queue.held
        # It leaves a free place behind: what is asked next is asked in its place.
        self._picture.set_reservation(job.id, None, ())

    @property
    def picture(self) -> CalendarPicture:
        """Everything but the job."""
        return self._picture

    @property
    def own(self) -> Picture:
        """The part of it in which the job waits."""
        return self._own

    def _require_all(self) -> None:
        """Any job that could be in the way has ended within what was read of the calendar, if it starts no later."""
        until, waiting = self._view.until, self._view.snapshot.waiting
        longest = max((job.length for job in waiting), default=timedelta(0))
        if until is not None and (self.start is None or self.start + max(longest, self._job.length) > until):
            raise PlanTooShortError

    def _decide(self) -> Start | PlannedSlot | None:
        for _ in range(_ROUNDS):
            for start in self._picture.plan_starts(self._now, _ALL):
                if start.id == self._job.id:
                    return start
            plan = self._picture.plan_slots(self._now, self._view.promises, _ALL)
            for slot in plan.slots:
                if slot.id == self._job.id and slot.gpus:
                    return slot
            if not plan.more:
                break
        return None

    def predict(self, predictor: StartPredictor) -> Prediction | None:
        """When the job is likely to start; None if it starts now, or too little is known.

        None, too, while a quota holds it back, within bookings, without GPUs, and where the planner predicts none.
        The planner finds that a quota holds another job back once there is room for it, and predicts as if that one
        could start until then; here such jobs are held back at once.
        Nothing can be asked afterwards.
        """
        is_untold = self._is_held_back or self._job.booking_id is not None or not self._view.estimates
        is_untold = is_untold or self._own is not self._picture.common
        if self.start == self._now or is_untold:
            return None
        slot = self._decided
        rows = (
            ()
            if slot is None
            else [Commitment(slot.id, gpu.gpu_id, slot.start, slot.end, held=False, planned=True) for gpu in slot.gpus]
        )
        common = self._own
        promised_at = None if self.promised_at is None else to_micros(self.promised_at)
        self._picture.set_reservation(self._job.id, replace(self._job, promised_at=promised_at), rows)
        if self._job.needs is not None:
            common.catch_up(self._now)
            return predictor.predict_dependants(common, self._view.predicted).get(self._job.id)
        self._add_others(common)
        beside = min(self._view.estimates, len(common.queue.jobs) - len(common.queue.held)) - 1
        return predictor.predict_once(common, self._job, beside, self._now)

    def _add_others(self, picture: Picture) -> None:
        """Put the jobs into the queue whose slots alone are known."""
        for job in self._view.others():
            if job.id in picture.ledger.slots and job.id not in picture.queue.jobs:
                picture.queue.add(job, slotted=True)
        if limits_starts(self._view.rules):
            hold_back_all(picture)

    def start_of(self, changed: Waiting) -> datetime | None:
        """When another request would start in the job's place."""
        if changed.booking_id is not None:
            return DryRun(self._view, changed, self._now).start
        start = earliest_slot(self._picture.of(changed), changed, self._now)
        return None if start is None else to_moment(start)

    def sooner(self, duration: timedelta, types: Collection[str]) -> list[SoonerJob]:
        """The nearest changes that start sooner: the longest shorter time, the most of fewer GPUs, the best of `types`.

        A smaller request never starts later, so a few questions find the nearest. `duration` is the job's; how much
        longer it has its GPUs stays.
        """
        job = self._job
        if job.preemptible:  # it is promised nothing, so that there is nothing to compare
            return []
        beside = job.length - duration
        has_gpus = job.gpu_type != CPU_TYPE
        size, gpu_type = (Size(job.nodes, job.gpus), job.gpu_type) if has_gpus else (Size(job.nodes, 0), None)

        def shortened(length: timedelta) -> Waiting:
            return replace(job, length=length + beside)

        def reduced(smaller: Size) -> Waiting:
            return replace(job, gpus=smaller.gpus, nodes=smaller.nodes)

        found: list[SoonerJob] = []
        for length, start in self._nearest(lengths_up_to(duration)[:-1], shortened):
            found.append(SoonerJob(RequestChange.SHORTER, size, gpu_type, length, self._promise(start)))
        for smaller, start in self._nearest(sizes_up_to(size)[:-1] if has_gpus else [], reduced):
            found.append(SoonerJob(RequestChange.FEWER, smaller, job.gpu_type, duration, self._promise(start)))
        starts = [(self.start_of(replace(job, gpu_type=gpu_type)), gpu_type) for gpu_type in sorted(types)]
        able = [(start, gpu_type) for start, gpu_type in starts if self._is_sooner(start) and start is not None]
        if able:
            start, gpu_type = min(able)
            found.append(SoonerJob(RequestChange.TYPE, size, gpu_type, duration, self._promise(start)))
        return found

    def _promise(self, start: datetime) -> datetime:
        """The promise that comes with a slot; within bookings there is no slack."""
        return start if start == self._now or self._job.booking_id is not None else start + self._view.slack

    def _nearest(self, options: Sequence[T], changed: Callable[[T], Waiting]) -> list[tuple[T, datetime]]:
        """The last of these, given from least to most, that starts at least `_NOTICED` sooner; none or one."""
        number = bisect_left(options, True, key=lambda option: not self._is_sooner(self.start_of(changed(option))))
        start = self.start_of(changed(options[number - 1])) if number else None
        return [] if start is None else [(options[number - 1], start)]

    def _is_sooner(self, start: datetime | None) -> bool:
        return start is not None and (self.start is None or start + _NOTICED <= self.start)


def hold_back_all(picture: Picture) -> None:
    """Hold back all jobs with a slot that a quota does not let start now, also where there is no room for them."""
    for job in [picture.queue.jobs[job_id] for job_id in picture.queue.slotted]:
        at, length = picture.at, length_micros(job.length)
        if not any(picture.within_quotas(job, pool.gpu_type, at, length) for pool in picture.pools.for_job(job)):
            picture.queue.hold_back(job)


Predict = Callable[[DryRun], Prediction | None]
"""Predicts the start of a dry run's job with a predictor of its own; see `DryRun.predict`."""

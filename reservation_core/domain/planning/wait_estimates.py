"""Estimates: what waiting jobs read about their place in the queue, their start, and what delays it.

A job that quotas bind is delayed by these, by the jobs and bookings that have the GPUs, or by both in turn. Each delay
is said with its time, to jobs that wait and in verdicts on requests.
"""

from dataclasses import replace
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from reservation_core.domain.calendar import FOREVER, length_micros, to_micros, to_moment
from reservation_core.domain.model import Reason
from reservation_core.domain.plan import WaitEstimate, Waiting
from reservation_core.domain.planning.planning_picture import Picture
from reservation_core.domain.planning.slot_decisions import SlotSearch
from reservation_core.domain.policy.limits import NO_POLICY
from reservation_core.domain.policy.quota_book import QuotaBook
from reservation_core.domain.policy.rule_words import moment_text
from reservation_core.domain.pools.forecast import forecast
from reservation_core.domain.pools.pool import Pool
from reservation_core.domain.pools.waiting_reasons import behind_in_line, taken_until_then
from reservation_core.domain.statuses import ReasonCode

_ROUNDS = 4
"""A later booking may delay a job again, and another one after it. More than this is too much to read."""

_UNBOUND = QuotaBook(NO_POLICY, {})


class _Delay(NamedTuple):
    """A reason that delays a job until a time; None: for ever."""

    until: int | None
    reason: Reason


class StartDelays:
    """Finds what delays the starts of jobs in one picture, whose profiles are up to date."""

    def __init__(self, picture: Picture, at: int) -> None:
        self._picture = picture
        self._at = at
        self._search = SlotSearch(picture, at, _UNBOUND)

    def allowed_from(self, job: Waiting, after: int) -> int | None:
        """From when on the quotas allow a job, on any GPUs that it may get; None: never."""
        if job.preemptible:  # it counts for no quota
            return after
        times = [self._allowed(job, pool.gpu_type, after) for pool in self._picture.pools.for_job(job)]
        return min((time for time in times if time is not None), default=None)

    def of(self, job: Waiting, start: int | None) -> list[Reason]:
        """All that delays a job until its start (None: for ever), in the order of their ends; none if no quota does.

        Of several types of GPUs, those on which it starts.
        """
        types = self._types(job)
        if job.preemptible or any(self._is_free_of_quotas(job, gpu_type, start) for gpu_type in types):
            return []
        delays: list[_Delay] = []
        first = FOREVER + 1
        for gpu_type in types:
            found, end = self._on(job if len(types) == 1 else replace(job, gpu_type=gpu_type), gpu_type, start)
            if end < first:
                delays, first = found, end
        if not any(delay.reason.code is ReasonCode.QUOTA_REACHED for delay in delays):
            return []
        delays.sort(key=lambda delay: delay.until or FOREVER)
        if start is not None and first < start and job.id not in self._picture.ledger.slots:
            delays.append(_Delay(start, behind_in_line(job.gpu_type)))
        return [delay.reason for delay in delays]

    def _types(self, job: Waiting) -> list[str]:
        """The types of GPUs to look at: that of its slot, or else all that it may get."""
        own = self._own_pool(job)
        return [pool.gpu_type for pool in ([own] if own is not None else self._picture.pools.for_job(job))]

    def _own_pool(self, job: Waiting) -> Pool | None:
        """The pool with the job's slot, if it has one."""
        return self._picture.pools.pool_of(job.id) if job.id in self._picture.ledger.slots else None

    def _is_free_of_quotas(self, job: Waiting, gpu_type: str, start: int | None) -> bool:
        """Whether quotas surely delay no such start: they allow it from now on even beside the job's own slot."""
        quotas, asker = self._picture.quotas, job.asker(gpu_type)
        if quotas.is_empty or not quotas.binds(asker):
            return True
        moments = (self._at,) if start is None else (self._at, start - 1)
        asked = (asker, job.all_gpus, length_micros(job.length))
        return all(quotas.earliest(*asked, moment) == moment for moment in moments if moment >= self._at)

    def _on(self, job: Waiting, gpu_type: str, start: int | None) -> tuple[list[_Delay], int]:
        """What delays a job on one type of GPUs, and when it could start there; FOREVER: never."""
        delays: list[_Delay] = []
        gpus_until = at = self._at
        for _ in range(_ROUNDS):
            if start is not None and start <= at:
                break
            allowed = self._allowed(job, gpu_type, at)
            if allowed != at:
                delays.append(self._quota_delay(job, gpu_type, at, allowed))
            if allowed is None:
                at = FOREVER
                break
            free = self._free_from(job, at)
            if free > at:
                gpus_until = free
            if allowed == free == at:
                break
            at = max(allowed, free)
        if gpus_until > self._at:
            until = moment_text(to_moment(gpus_until))
            taken = taken_until_then(job.gpus, job.nodes, job.gpu_type, job.share, until)
            delays.insert(0, _Delay(gpus_until, taken))
        return delays, at

    def _allowed(self, job: Waiting, gpu_type: str, after: int) -> int | None:
        length = length_micros(job.length)
        return self._picture.quotas.earliest(job.asker(gpu_type), job.all_gpus, length, after, job.id)

    def _quota_delay(self, job: Waiting, gpu_type: str, at: int, allowed: int | None) -> _Delay:
        """The quotas that a start at a time would break."""
        asked = (job.asker(gpu_type), job.all_gpus, length_micros(job.length), at, job.id)
        broken = self._picture.quotas.why_not(*asked, now=self._at)
        detail = "" if broken is None else broken.detail
        if allowed is not None:
            detail += f" It is allowed from {moment_text(to_moment(allowed))}."
        return _Delay(allowed, Reason(ReasonCode.QUOTA_REACHED, detail))

    def _free_from(self, job: Waiting, after: int) -> int:
        """From when on GPUs are free for a job, whatever its quotas are."""
        best = self._search.best_fit(job, FOREVER, self._own_pool(job), after)
        return after if best is None else max(best[1].start, after)


def estimate_waits(picture: Picture, now: datetime, limit: int) -> list[WaitEstimate]:
    """Estimates for the first `limit` waiting jobs, in queue order."""
    at = picture.catch_up(now)
    pools, ledger = picture.pools, picture.ledger
    jobs = list(islice(picture.queue.in_order(), limit))
    slots = {}
    for job in jobs:
        if job.id in ledger.slots:
            pool = pools.pool_of(job.id)
            slots[job.id] = ("" if pool is None else pool.gpu_type, ledger.slots[job.id][0])
    estimates = forecast(jobs, pools.by_type, pools.capacity, pools.reach, slots, at)
    if picture.quotas.is_empty:
        return estimates
    for profile in pools.profiles.values():
        profile.refresh()
    delays = StartDelays(picture, at)
    return [_bounded(picture, delays, estimate, at) for estimate in estimates]


def _bounded(picture: Picture, delays: StartDelays, estimate: WaitEstimate, at: int) -> WaitEstimate:
    """Estimate within quotas: all that delays a job which they delay, and no start before they allow one."""
    job, start = picture.queue.jobs[estimate.id], estimate.estimated_start_at
    if start is None:
        return estimate
    if job.id not in picture.ledger.slots:
        allowed = delays.allowed_from(job, max(to_micros(start), at))
        start = None if allowed is None else to_moment(allowed)
    reasons = delays.of(job, None if start is None else to_micros(start))
    if not reasons:
        return replace(estimate, estimated_start_at=start)
    detail = " ".join(reason.detail for reason in reasons)
    # Of several, the code is the quota's: that is what its owner can do something about.
    return replace(estimate, estimated_start_at=start, reason=Reason(ReasonCode.QUOTA_REACHED, detail))

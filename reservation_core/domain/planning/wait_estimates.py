"""Estimates: what waiting jobs read about their place in the queue and their start."""

from dataclasses import replace
from datetime import datetime
from itertools import islice

from reservation_core.domain.calendar import length_micros, to_moment
from reservation_core.domain.plan import WaitEstimate
from reservation_core.domain.planning.planning_picture import Picture
from reservation_core.domain.pools.forecast import forecast


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
    held = picture.queue.held
    return [_bounded(picture, estimate, at) if estimate.id in held else estimate for estimate in estimates]


def _bounded(picture: Picture, estimate: WaitEstimate, at: int) -> WaitEstimate:
    """Estimate for a job that is held back: which quota holds it, and no start before that quota allows one."""
    job = picture.queue.jobs[estimate.id]
    askers = [job.asker(pool.gpu_type) for pool in picture.pools.for_job(job)]
    if not askers or estimate.estimated_start_at is None:
        return estimate
    gpus, length = job.all_gpus, length_micros(job.length)
    reason = picture.quotas.why_not(askers[0], gpus, length, at, job.id)
    if job.id not in picture.ledger.slots:
        times = [picture.quotas.earliest(asker, gpus, length, at, job.id) for asker in askers]
        first = min((time for time in times if time is not None), default=None)
        start = None if first is None else max(to_moment(first), estimate.estimated_start_at)
        estimate = replace(estimate, estimated_start_at=start)
    return estimate if reason is None else replace(estimate, reason=reason)

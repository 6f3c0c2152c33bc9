"""Predicted starts of jobs that wait for others: the predictions of these, and how long they are likely to run.

By p50 and by p90 each: a job that runs ends as jobs like it did, one that waits also starts as is predicted. The latest
counts of all that a job waits for, and of those that have the GPUs of its slot right before it; never more than its
promise. While others wait for GPUs, these may come before it: then its p90 is its promise. Nothing is said without a
slot, or where nothing is predicted of one of the others. These starts take no part in calibration: what is learnt from
waits in the queue is of other waits.
"""

from bisect import bisect_left
from collections.abc import Mapping
from heapq import nsmallest
from typing import NamedTuple

from reservation_core.domain.calendar import length_micros
from reservation_core.domain.plan import Need, Waiting
from reservation_core.domain.planning.planning_picture import Picture
from reservation_core.domain.planning.predictions.run_time_shares import RunTimeShares

MOST = 500
"""Of so many jobs starts are predicted, those whose slots begin first."""

_SECOND = 1_000_000


class Likely(NamedTuple):
    """By when something happens in half of all cases, and in nine of ten; in microseconds."""

    p50: int
    p90: int


def predict_chained(
    picture: Picture, shares: RunTimeShares, starts: Mapping[str, Likely], at: int
) -> Mapping[str, Likely]:
    """The likely starts of jobs that wait for others; `starts` are those of jobs in the queue."""
    slots, jobs = picture.ledger.slots, picture.dependants
    first = nsmallest(MOST, ((slots[job_id][0], job_id) for job_id in jobs if job_id in slots))
    needed = {need.job for job in jobs.values() for need in job.needs or ()} if first else set()
    # Those that chains begin with are in nobody's way.
    is_alone = all(job_id in needed for job_id in picture.queue.jobs)
    found: dict[str, Likely] = {}
    known = dict(starts)
    for slot, job_id in first:  # what it waits for has an earlier slot
        needs = jobs[job_id].needs
        ends = [Need(other, by_start=False) for other in _before(picture, job_id, slot)]
        met = [_met(picture, shares, known, need, at) for need in (*needs, *ends)] if needs else []
        sure = [likely for likely in met if likely is not None]
        if not met or len(sure) < len(met):
            continue
        promised = max(at, slot, picture.queue.promises.get(job_id, at))
        p50 = min(max(likely.p50 for likely in sure), promised)
        p90 = min(max(likely.p90 for likely in sure), promised) if is_alone else promised
        found[job_id] = known[job_id] = Likely(p50, max(p50, p90))
    return found


def _before(picture: Picture, job_id: str, slot: int) -> set[str]:
    """Those that have GPUs of a job's slot right before it."""
    found: set[str] = set()
    for gpu_id, _ in picture.ledger.by_reservation[job_id]:
        rows = picture.ledger.calendar(gpu_id).rows
        at = bisect_left(rows, (slot,))
        if at:
            found.add(rows[at - 1][3])
    return found


def _met(picture: Picture, shares: RunTimeShares, starts: Mapping[str, Likely], need: Need, at: int) -> Likely | None:
    """By when another job is as far as one waits for; None if that can't be told."""
    rows = picture.ledger.allocated(need.job)
    if not rows:
        return _met_later(picture, shares, starts, need)
    (start, end, is_held, _) = rows[0][1]
    latest = start + need.beside if need.by_start else end
    if latest <= at or need.job in picture.ledger.preemptible:
        return None
    if need.by_start:
        return Likely(at, latest)
    if not is_held:  # a booking
        return Likely(end, end)
    likely = _run_time(shares, None, len(rows), end - start, max(0, at - start))
    return Likely(max(at, start + likely.p50), max(at, start + likely.p90))


def _met_later(picture: Picture, shares: RunTimeShares, starts: Mapping[str, Likely], need: Need) -> Likely | None:
    """The same of a job that waits."""
    begins = starts.get(need.job)
    job: Waiting | None = picture.queue.jobs.get(need.job) or picture.dependants.get(need.job)
    if begins is None or job is None or job.preemptible:
        return None
    if need.by_start:
        return Likely(begins.p50, begins.p90 + need.beside)
    likely = _run_time(shares, job.owner, job.all_gpus, length_micros(job.length), 0)
    return Likely(begins.p50 + likely.p50, begins.p90 + likely.p90)


def _run_time(shares: RunTimeShares, owner: int | None, gpus: int, asked: int, ran: int) -> Likely:
    """How long a job runs that has asked for so long and has run for so long; in microseconds."""
    p50 = shares.predict(owner, gpus, asked / _SECOND, ran / _SECOND)
    p90 = max(p50, shares.predict_long(gpus, asked / _SECOND, ran / _SECOND))
    return Likely(int(p50 * _SECOND), int(p90 * _SECOND))

"""Failed starts: which are tried again on other nodes, and how often.

A failed start ends like any other job, with the outcome `queued`, and is requeued when its pods are gone. Only a
workload that never ran is tried again: one that has begun may have left traces.
"""

from dataclasses import replace
from datetime import timedelta

from reservation_core.domain.model import PodPhase, PodStatus, Reason, Reservation
from reservation_core.domain.short_durations import in_words
from reservation_core.domain.statuses import JobStatus, ReasonCode

MAY_START_ELSEWHERE = frozenset(
    {
        ReasonCode.START_FAILED,
        ReasonCode.START_TIMEOUT,
        ReasonCode.IMAGE_PULL_FAILED,
        ReasonCode.UNSCHEDULABLE,
        ReasonCode.EVICTED,
        ReasonCode.NODE_LOST,
    }
)
"""Reasons of a failed start that may succeed on another node, or later."""

HOPELESS_STARTS = 2
"""The attempts for a pod that its node says can't start at all: two nodes that agree are believed."""

TAKEN_AWAY = frozenset({ReasonCode.EVICTED, ReasonCode.NODE_LOST, ReasonCode.POD_DELETED})
"""Reasons of an unfinished pod that another party removes."""

TOO_LATE = Reason(
    ReasonCode.START_TIMEOUT,
    "Its pods began to run only after the start was given up, so they were ended. The command may have run, "
    "and is not repeated: check its log, then submit the job again.",
)


def never_started(status: PodStatus) -> bool:
    """Whether a finished pod never ran, for a reason that another node may not have."""
    return (
        status.phase is PodPhase.FINISHED
        and status.started_at is None
        # An exit code means that a command ran or is not in the image, which is the same elsewhere.
        and status.exit_code is None
        and status.reason is not None
        and status.reason.code in MAY_START_ELSEWHERE
    )


def timed_out(reservation: Reservation, seconds: int) -> Reason:
    """The reason of a start timeout: the cluster's last one, if it gave any."""
    if reservation.reason.code in MAY_START_ELSEWHERE:
        return reservation.reason
    allowed = in_words(timedelta(seconds=seconds))
    detail = f"The pods did not run within {allowed} of the allocation. Submit the job again, or ask an administrator."
    return Reason(ReasonCode.START_TIMEOUT, detail)


def taken_back(reservation: Reservation, cause: Reason, max_starts: int) -> Reservation:
    """End a reservation whose start failed: requeued later or, after `max_starts` attempts, failed."""
    # Those that ran are counted as retries or preemptions.
    attempt = reservation.attempt - reservation.retried - reservation.preemption.times
    if attempt < max_starts:
        detail = (
            f"Attempt {attempt} of {max_starts} did not start: {cause.detail} "
            "It goes back to its place in the queue, and other nodes are tried if there are any."
        )
        reason = Reason(ReasonCode.REQUEUED, detail)
        return replace(reservation, status=JobStatus.ENDING, outcome=JobStatus.QUEUED, reason=reason)
    if attempt > 1:
        cause = Reason(cause.code, f"{cause.detail} It was tried {attempt} times.")
    return replace(reservation, status=JobStatus.ENDING, outcome=JobStatus.FAILED, reason=cause)


def queued_again(reservation: Reservation) -> Reservation:
    """Requeue a reservation; only the attempt's number stays."""
    return replace(
        reservation,
        status=JobStatus.QUEUED,
        outcome=None,
        range_end=None,
        started_at=None,
        ends_at=None,
        exit_code=None,
        warned_s=None,
        idle=None,
        preemption=replace(reservation.preemption, signalled_at=None, asked_at=None),
    )

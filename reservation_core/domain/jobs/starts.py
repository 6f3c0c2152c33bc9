"""Starts that fail: which are worth another try on other nodes, how often, and what is said of it.

A job whose pods could not start is taken back: it ends like any other, with the outcome `queued`, and waits again when
its pods are gone. Only what never ran is tried again: a workload that has begun may have left traces.
"""

from dataclasses import replace

from reservation_core.domain.model import JobStatus, PodPhase, PodStatus, Reason, ReasonCode, Reservation

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
"""Why a pod did not start that may start on another node, or later."""

HOPELESS_STARTS = 2
"""How often a pod is made that its node says it can't start on any account: two nodes that agree are believed."""

TAKEN_AWAY = frozenset({ReasonCode.EVICTED, ReasonCode.NODE_LOST, ReasonCode.POD_DELETED})
"""Why a pod that is not over yet can't go on: somebody else takes it away."""


TOO_LATE = Reason(
    ReasonCode.START_TIMEOUT,
    "Its pods began to run only when the start had been given up, and were ended. What has run is not run again by "
    "itself: look at its log, and submit the job again.",
)


def never_started(status: PodStatus) -> bool:
    """Whether a finished pod never ran anything, for a reason that another node may not have."""
    return (
        status.phase is PodPhase.FINISHED
        and status.started_at is None
        # With an exit code something was run, or could not be found in the image: it would be the same elsewhere.
        and status.exit_code is None
        and status.reason is not None
        and status.reason.code in MAY_START_ELSEWHERE
    )


def timed_out(reservation: Reservation, seconds: int) -> Reason:
    """Why the pods did not run in time: what the cluster last said of them, if it said anything."""
    if reservation.reason.code in MAY_START_ELSEWHERE:
        return reservation.reason
    detail = (
        f"The pods did not run within {seconds} s of the allocation. Submit the job again, or ask an administrator."
    )
    return Reason(ReasonCode.START_TIMEOUT, detail)


def taken_back(reservation: Reservation, cause: Reason, max_starts: int) -> Reservation:
    """A starting reservation whose start failed: ending, to be queued again or, after `max_starts` attempts, failed."""
    attempt = reservation.attempt
    if attempt < max_starts:
        detail = (
            f"Attempt {attempt} of {max_starts} did not start: {cause.detail} "
            "It goes back to its place in line and to other nodes if there are any; there is nothing to do."
        )
        reason = Reason(ReasonCode.REQUEUED, detail)
        return replace(reservation, status=JobStatus.ENDING, outcome=JobStatus.QUEUED, reason=reason)
    if attempt > 1:
        cause = Reason(cause.code, f"{cause.detail} It was tried {attempt} times.")
    return replace(reservation, status=JobStatus.ENDING, outcome=JobStatus.FAILED, reason=cause)


def queued_again(reservation: Reservation) -> Reservation:
    """A reservation that was taken back, with nothing left of its attempt but the count."""
    return replace(
        reservation,
        status=JobStatus.QUEUED,
        outcome=None,
        range_end=None,
        started_at=None,
        ends_at=None,
        exit_code=None,
        warned_s=None,
    )

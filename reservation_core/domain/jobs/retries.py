"""Retries: a job that ends for a reason that its owner names is queued again, a bounded number of times.

The job keeps its id and its place in the queue, and runs from the start in pods of a new attempt.
"""

from collections.abc import Mapping
from dataclasses import replace

from reservation_core.domain.model import Reason, Reservation
from reservation_core.domain.request_terms import RetryCause
from reservation_core.domain.statuses import JobStatus, ReasonCode

CAUSES: Mapping[ReasonCode, tuple[RetryCause, str]] = {
    ReasonCode.COMMAND_FAILED: (RetryCause.FAILED, "its command failed"),
    ReasonCode.KILLED_BY_SIGNAL: (RetryCause.FAILED, "a signal ended its command"),
    ReasonCode.OUT_OF_MEMORY: (RetryCause.FAILED, "its command used too much memory"),
    ReasonCode.NODE_LOST: (RetryCause.NODE_LOST, "its node was lost"),
    ReasonCode.POD_LOST: (RetryCause.NODE_LOST, "a pod was lost"),
    ReasonCode.EVICTED: (RetryCause.PREEMPTED, "the cluster evicted a pod"),
    ReasonCode.POD_DELETED: (RetryCause.PREEMPTED, "a pod was deleted from outside"),
    ReasonCode.MAINTENANCE: (RetryCause.PREEMPTED, "maintenance needed its GPUs"),
}
"""The ends that can be retried, and what the owner reads of them.

A start that failed is tried again by itself, and what a user ends stays ended.
"""


def tries(reservation: Reservation) -> int:
    """How often a job may run: each run may take its whole duration."""
    return 1 if reservation.retries is None else 1 + reservation.retries.max


def has_retry_left(reservation: Reservation) -> bool:
    """Whether a job may be retried once more."""
    return reservation.retries is not None and reservation.retried < reservation.retries.max


def is_retried(reservation: Reservation) -> bool:
    """Whether an ending job will be queued again when its pods are gone."""
    retries, cause = reservation.retries, CAUSES.get(reservation.reason.code)
    return (
        retries is not None
        and reservation.status is JobStatus.ENDING
        and reservation.outcome in (JobStatus.FAILED, JobStatus.EXPIRED)
        and cause is not None
        and cause[0] in retries.on
        and has_retry_left(reservation)
        and (reservation.started_at is not None or reservation.exit_code is not None)  # a start that failed is no run
    )


def retried(reservation: Reservation) -> Reservation:
    """A job that `is_retried`, with one retry more and the reason of its last end."""
    number, (_, why) = reservation.retried + 1, CAUSES[reservation.reason.code]
    code = "" if reservation.exit_code is None else f" (exit code {reservation.exit_code})"
    detail = (
        f"Attempt {reservation.attempt} ended because {why}{code}. "
        f"This is retry {number} of {tries(reservation) - 1}; there is nothing to do."
    )
    return replace(reservation, retried=number, reason=Reason(ReasonCode.REQUEUED, detail))

"""Orphans: pods that run although the ledger, restored from a backup, does not know their attempt.

Every pod carries what the ledger needs to know about it (see PodHolding), so its job is adopted where it runs, not
started again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from reservation_core.domain.changes import (
    NO_GPU,
    Adopted,
    Decision,
    HeldGpu,
    Record,
    ReleaseGpus,
    TakeGpus,
    WakePlanner,
)
from reservation_core.domain.event_kinds import JobEventKind
from reservation_core.domain.jobs.retries import has_retry_left, is_retried
from reservation_core.domain.model import PodStatus, Reason, Reservation
from reservation_core.domain.statuses import FINAL_STATUSES, JobStatus, ReasonCode


class PodStanding(StrEnum):
    """What a pod is to its reservation's row."""

    KNOWN = "known"
    LEFT_OVER = "left_over"
    FORGOTTEN = "forgotten"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Unadoptable:
    """The pods can't be adopted as they are; `detail` says why."""

    detail: str


def standing(reservation: Reservation | None, attempt: int) -> PodStanding:
    """What a pod of this attempt is to its row: known, left over from the past, forgotten, or unknown."""
    if reservation is None:
        return PodStanding.UNKNOWN
    if reservation.status in FINAL_STATUSES or attempt < reservation.attempt:
        return PodStanding.LEFT_OVER
    if attempt == reservation.attempt:
        # A waiting job has let go of the pods of its last attempt.
        return PodStanding.LEFT_OVER if reservation.status is JobStatus.QUEUED else PodStanding.KNOWN
    return PodStanding.FORGOTTEN if _may_be_adopted(reservation) else PodStanding.UNKNOWN


def _may_be_adopted(reservation: Reservation) -> bool:
    """Only a job that waits, starts, will wait again or may be retried can have begun a newer attempt."""
    match reservation.status:
        case JobStatus.QUEUED | JobStatus.STARTING:
            return True
        case JobStatus.RUNNING:
            return has_retry_left(reservation) or reservation.preemption.preemptible
        case _:
            return reservation.outcome is JobStatus.QUEUED or is_retried(reservation)


def adoption_of(reservation: Reservation, pods: Sequence[PodStatus]) -> Adopted | Unadoptable:
    """Read an adoption from the pods of a newer attempt, if they are complete and match the reservation."""
    attempts = {pod.name.attempt for pod in pods}
    if len(attempts) != 1:
        return Unadoptable(f"There are pods of {len(attempts)} attempts at once.")
    holdings = {pod.name.rank: pod.holding for pod in pods}
    if sorted(holdings) != list(range(reservation.nodes)):
        return Unadoptable(f"{len(holdings)} of the {reservation.nodes} pods of this attempt are there.")
    gpus = []
    ends = []
    for rank, holding in sorted(holdings.items()):
        if holding is None:
            return Unadoptable("A pod does not say which GPUs it holds.")
        if len(set(holding.gpu_indices)) != reservation.gpus or len(holding.gpu_indices) != reservation.gpus:
            return Unadoptable(
                f"A pod says that it holds GPUs {','.join(map(str, holding.gpu_indices)) or 'none'}, and its job asks "
                f"for {reservation.gpus} on each node."
            )
        if holding.pods != reservation.nodes or holding.ends_at <= holding.starts_at:
            return Unadoptable("A pod names an attempt that does not match its job.")
        gpus += [HeldGpu(holding.node, index, rank) for index in sorted(holding.gpu_indices) or (NO_GPU,)]
        ends.append(holding.ends_at)
    if len({gpu.node for gpu in gpus}) != reservation.nodes:
        return Unadoptable("Its pods are not on different nodes.")
    return Adopted(attempts.pop(), tuple(gpus), max(ends))


def adopted(reservation: Reservation, event: Adopted) -> Decision:
    """Take the reservation to the attempt of its pods, holding their GPUs; later changes are observed after that.

    The ledger's ranges begin now: earlier ones can't be changed.
    """
    if not _may_be_adopted(reservation) or event.attempt <= reservation.attempt:
        return reservation, ()
    after = replace(
        reservation,
        status=JobStatus.STARTING,
        reason=Reason(ReasonCode.ALLOCATED, "Its pods were found on their nodes, and the job goes on."),
        attempt=event.attempt,
        outcome=None,
        range_end=event.range_end,
        started_at=None,
        ends_at=None,
        exit_code=None,
        warned_s=None,
        # A restored ledger may be older than the end of what it waited for.
        held=None if reservation.held is None else False,
        idle=None,
        preemption=replace(reservation.preemption, signalled_at=None, asked_at=None),
        retried=reservation.retried + (reservation.started_at is not None and has_retry_left(reservation)),
    )
    former = () if reservation.status is JobStatus.QUEUED else (ReleaseGpus(reservation.started_at),)
    held = [f"{gpu.node}/{gpu.index}" for gpu in event.cards if gpu.index != NO_GPU]
    data = {"attempt": event.attempt, "gpus": held}
    taken = TakeGpus(event.cards, event.range_end)
    return after, (*former, taken, WakePlanner(), Record(JobEventKind.ADOPTED, data=data))

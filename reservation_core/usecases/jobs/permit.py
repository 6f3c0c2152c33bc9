"""The policy's check of a job: one that could never start is refused at submission; one that may start later waits."""

from dataclasses import replace
from datetime import datetime, timedelta

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.errors import NotPermittedError
from reservation_core.domain.model import Reservation
from reservation_core.domain.policy.any_type import never_on_any
from reservation_core.domain.policy.limits import Policy
from reservation_core.domain.policy.nouns import QUOTAS
from reservation_core.domain.policy.rules import (
    RuleBreach,
    RuleRequest,
    check,
    known_from,
    never_possible,
)
from reservation_core.domain.request_terms import CPU_TYPE
from reservation_core.domain.statuses import JobStatus, ReservationKind


def job_request(job: Reservation, duration: timedelta | None = None) -> RuleRequest:
    """Build the request that rules are applied to, for a job or for the job with another duration."""
    return RuleRequest(
        kind=ReservationKind.JOB,
        user=job.user,
        gpus=job.gpus * job.nodes,
        duration=duration or job.duration,
        gpu_type=job.gpu_type if job.gpus else CPU_TYPE,
        project=job.project,
        priority=job.priority,
        replaces=job.id,
    )


def never_permitted(job: Reservation, policy: Policy, now: datetime, *, foreign: bool = False) -> list[RuleBreach]:
    """Every rule that a job breaks for ever; none if it may start some day.

    Jobs of a booking are the booking's, and preemptible jobs and jobs without GPUs take from nobody: they are not held
    to quotas.

    What a `foreign` project allows is not its owner's to know: its rules are not asked.
    """
    request = job_request(job)
    if foreign:
        request = replace(request, project=None)
    # A job within a booking gets the booking's type, whatever the rules of other types say.
    broken = (never_on_any if job.booking_id is None else never_possible)(request, policy, now)
    if job.booking_id is not None or _counts_for_no_quota(job):
        broken = [rule for rule in broken if rule.code not in QUOTAS]
    return broken


async def permit_extension(uow: UnitOfWork, job: Reservation, by: timedelta, now: datetime) -> None:
    """Let a job last longer if the policy allows it. Raises NotPermittedError.

    Its owner must be locked (see `lock_owner`). A job of a booking is bounded by the booking.
    """
    policy = (await uow.policies.current()).policy
    if policy.is_empty or job.booking_id is not None:
        return
    if job.range_end is None or job.gpus == 0:
        broken = never_on_any(job_request(job, job.duration + by), policy, now)
    else:
        more = replace(job_request(job, by), start=job.range_end, replaces=None, extends=True)
        limits = policy.limits(job.user, job.project, job.gpu_type)
        usage = await uow.policies.usage(job.user_id, job.project, known_from(more, limits, now), now)
        # A running job has cards of one type, even if it asked for any.
        gpu_type = next(
            (holding.gpu_type for holding in usage.holdings if holding.reservation_id == job.id), job.gpu_type
        )
        longer = job_request(job, job.duration + by)
        if job.status is not JobStatus.QUEUED:
            longer = replace(longer, gpu_type=gpu_type)
        broken = never_on_any(longer, policy, now) or check(replace(more, gpu_type=gpu_type), policy, usage, now)
    if _counts_for_no_quota(job):
        broken = [rule for rule in broken if rule.code not in QUOTAS]
    if broken:
        raise not_permitted(broken)


def _counts_for_no_quota(job: Reservation) -> bool:
    return job.preemption.preemptible or job.gpus == 0


async def lock_owner(uow: UnitOfWork, job_id: str) -> None:
    """Lock the quotas of a job's owner and project until the transaction ends.

    Before the job itself is locked: whoever starts jobs takes these first, too.
    """
    job = (await uow.reservations.get([job_id])).get(job_id)
    if job is not None:
        await uow.policies.lock_holders([job.user_id], [] if job.project is None else [job.project])


def not_permitted(broken: list[RuleBreach]) -> NotPermittedError:
    """Build the refusal."""
    reasons = " ".join(rule.detail for rule in broken)
    return NotPermittedError(f"{reasons} `gpu-dev policy list` shows the rules for you.", broken)

"""Accepting jobs: from a request to a row and its message, in one transaction for many."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.contracts.jobs import JobSubmit
from reservation_core.domain.errors import DomainError, ForbiddenError, LimitExceededError, merge_refusals
from reservation_core.domain.jobs.dependencies import KnownDependency, waiting_reason
from reservation_core.domain.model import NO_PREEMPTION, PodWorkload, Preemption, Reason, Reservation
from reservation_core.domain.policy.limits import NO_LIMITS, NO_POLICY, Limits, Policy
from reservation_core.domain.policy.membership import not_in_project
from reservation_core.domain.policy.rules import RuleBreach
from reservation_core.domain.request_terms import Resources, cpu_job_resources
from reservation_core.domain.short_durations import written
from reservation_core.domain.statuses import JobStatus, ReasonCode, ReservationKind
from reservation_core.ports.ids import IdSource
from reservation_core.ports.jobs.reservations import NewReservation, Submitted
from reservation_core.ports.people.identities import Principal
from reservation_core.ports.wakeups import Channel
from reservation_core.usecases.jobs.permit import never_permitted, not_permitted
from reservation_core.usecases.repeat_lost_transactions import repeat_lost
from reservation_core.usecases.spend_budgets import ask_of, spend

ACCEPTED = Reason(ReasonCode.SUBMITTED, "Accepted; it will be planned in a moment.")


def prepare(
    request: JobSubmit,
    principal: Principal,
    *,
    ids: IdSource,
    longest: timedelta,
    now: datetime,
    policy: Policy = NO_POLICY,
    foreign: RuleBreach | None = None,
    found: Iterable[DomainError] = (),
    after: tuple[KnownDependency, ...] = (),
) -> NewReservation:
    """A job as it will be stored. `foreign`: what its project breaks that is not its submitter's, or not its booking's.
    `after`: what it waits for.

    Raises LimitExceededError or ForbiddenError for what the rules refuse, NotPermittedError for what the policy will
    never allow, or the first of the refusals that were `found` before; with all others in its words. Whether its
    booking and its project are to be used is found out when it is stored.
    """
    project = request.project if foreign is None else None
    limits = NO_LIMITS if policy.is_empty else policy.limits(principal.user, project, request.gpu_type)
    ceiling = limits.priority
    refusals = [*found, *_beyond_bounds(request, longest, may_raise=principal.is_admin or ceiling is not None)]
    reservation = Reservation(
        id=ids.new_id("job"),
        seq=0,
        kind=ReservationKind.JOB,
        user_id=principal.user_id,
        user=principal.user,
        name=request.name,
        status=JobStatus.QUEUED,
        reason=waiting_reason(after) if after else ACCEPTED,
        gpus=request.gpus,
        gpu_type=request.gpu_type,
        nodes=request.nodes,
        duration=request.duration,
        priority=request.priority,
        workload=_workload_of(request),
        created_at=now,
        version=1,
        booking_id=request.booking_id,
        project=request.project,
        inactivity=_inactivity_of(request, limits),
        held=True if after or request.array is not None else None,
        array=None if request.array is None else request.array.terms,
        retries=None if request.retries is None else request.retries.terms,
        preemption=_preemption_of(request),
        resources=_resources_of(request),
    )
    broken = [] if policy.is_empty else never_permitted(reservation, policy, now, foreign=foreign is not None)
    if foreign is not None and request.booking_id is None and (refusals or broken):
        broken = [foreign, *broken]
    if broken:
        refusals.append(not_permitted(broken))
    if refusals:
        raise merge_refusals(refusals)
    return NewReservation(reservation, actor=principal.user, after=after, foreign=foreign)


def _resources_of(request: JobSubmit) -> Resources | None:
    asked = None if request.resources is None else request.resources.terms
    return cpu_job_resources(asked) if request.gpus == 0 else asked


def _workload_of(request: JobSubmit) -> PodWorkload:
    return PodWorkload(
        command=tuple(request.workload.command),
        image=request.workload.image,
        env=tuple(request.workload.env.items()),
        working_dir=request.workload.working_dir,
        secrets=tuple(secret.use for secret in request.secrets),
        sync=None if request.sync is None else request.sync.asked,
        disks=tuple(disk.use for disk in request.disks),
    )


def _preemption_of(request: JobSubmit) -> Preemption:
    if not request.preemptible and request.end_signal is None:
        return NO_PREEMPTION
    signal = None if request.end_signal is None else request.end_signal.terms
    return Preemption(request.preemptible, request.min_runtime or timedelta(0), signal)


def _beyond_bounds(request: JobSubmit, longest: timedelta, *, may_raise: bool) -> Iterator[DomainError]:
    """What refuses a job's duration and priority; `may_raise`: the policy or an administrator decides on priorities."""
    if request.duration > longest:
        yield LimitExceededError(
            f"The duration is {written(request.duration)}; at most {written(longest)} are allowed. "
            "Ask for less and extend the job while it runs."
        )
    if request.inactivity is not None and request.workload.command:
        yield LimitExceededError(
            "Only sessions end by inactivity, and a session is a job without a command. "
            "Leave the inactivity out, or leave the command out."
        )
    if request.priority > 0 and not may_raise:
        yield ForbiddenError("Only administrators may raise a job's priority above 0. Leave it out, or lower it.")


def _inactivity_of(request: JobSubmit, limits: Limits) -> timedelta | None:
    """How long a session may stay without a connection: as asked for, at most as the policy says."""
    if request.workload.command:
        return None
    allowed = None if limits.inactivity is None else limits.inactivity.value
    return min((length for length in (request.inactivity, allowed) if length is not None), default=None)


async def project_within(uow_factory: UnitOfWorkFactory, principal: Principal, booking_id: str) -> str | None:
    """Return the project of a booking of the caller, which its jobs are for."""
    async with uow_factory(one_statement=True) as uow:
        return await uow.bookings.project_of(booking_id, principal.user_id)


def other_than_booked(request: JobSubmit, project: str | None) -> RuleBreach | None:
    """What a job breaks that is for another project than its booking; None where it names none, or the same."""
    return None if request.project in (None, project) else not_in_project(request.project)


async def submit(uow_factory: UnitOfWorkFactory, batch: Sequence[NewReservation], now: datetime) -> list[Submitted]:
    """Store a batch; when this returns, it is durable. Answers come in the order given."""

    # Rows, events, messages and keys are stored by a single statement: no transaction around it is needed.
    async def store() -> list[Submitted]:
        async with uow_factory(one_statement=True) as uow:
            answers = await uow.reservations.submit(batch, now)
            uow.wake(Channel.GPU_JOBS)
            uow.wake(Channel.EVENTS)
        return answers

    return await repeat_lost(store)


async def submit_on_budget(
    uow_factory: UnitOfWorkFactory, principal: Principal, new: NewReservation, now: datetime
) -> Submitted:
    """Store one job of a token with a budget.

    Raises NotPermittedError where the budget does not pay for it.
    """

    # In a transaction of its own: a job that waits for a budget delays no other job.
    async def store() -> Submitted:
        async with uow_factory() as uow:
            [answer] = await uow.reservations.submit([new], now)
            if answer.is_stored:
                await spend(uow, principal, [ask_of(new.reservation)], now)
                uow.wake(Channel.GPU_JOBS)
                uow.wake(Channel.EVENTS)
        return answer

    return await repeat_lost(store)

"""Jobs that wait for other jobs: submitting them, and letting them go on or ending them."""

from collections.abc import Sequence
from datetime import datetime

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.contracts.queue_messages import JobMessage
from reservation_core.domain.changes import DecidedChange, SetRangeEnd
from reservation_core.domain.errors import UnknownJobError
from reservation_core.domain.jobs.asked_dependencies import Dependency
from reservation_core.domain.jobs.dependencies import KnownDependency, settle, still_open
from reservation_core.domain.jobs.lifecycle import decide
from reservation_core.domain.policy.rules import RuleBreach
from reservation_core.ports.clock import Clock
from reservation_core.ports.jobs.reservations import NewReservation, Submitted
from reservation_core.ports.people.identities import Principal
from reservation_core.ports.queues import QueueName
from reservation_core.ports.wakeups import Channel
from reservation_core.usecases.carry_out import carry_out
from reservation_core.usecases.jobs.visible_jobs import visible_user
from reservation_core.usecases.repeat_lost_transactions import repeat_lost
from reservation_core.usecases.spend_budgets import ask_of, spend

_BATCH = 200
_SHOWN = 3
_MOST_NAMED = 100


async def known_dependencies(
    uow: UnitOfWork, principal: Principal, dependencies: Sequence[Dependency]
) -> tuple[KnownDependency, ...]:
    """Look the jobs up that a job is to wait for. Raises UnknownJobError for jobs that the caller lacks."""
    if not dependencies:
        return ()
    known = await uow.dependencies.known(dependencies, visible_user(principal))
    _require([one.job for one in dependencies], {one.job for one in known})
    return tuple(known)


async def submit_dependent(
    uow_factory: UnitOfWorkFactory, principal: Principal, new: NewReservation, now: datetime
) -> Submitted:
    """Store one job with what it waits for. Raises UnknownJobError, and NotPermittedError by a token's budget."""

    # In a transaction of its own: it waits for those who start or end what the job waits for.
    async def store() -> Submitted:
        async with uow_factory() as uow:
            return await store_dependent(uow, principal, new, now)

    return await repeat_lost(store)


async def store_dependent(uow: UnitOfWork, principal: Principal, new: NewReservation, now: datetime) -> Submitted:
    """Store one job with what it waits for, if anything, in a transaction. Raises as `submit_dependent`."""
    ids = [dependency.job for dependency in new.after]
    if ids:
        _require(ids, await uow.dependencies.keep(ids, visible_user(principal)))
    [answer] = await uow.reservations.submit([new], now)
    if answer.is_stored:
        if ids:
            await uow.dependencies.add(new.reservation.id, new.after)
        await spend(uow, principal, [ask_of(new.reservation)], now)
        uow.wake(Channel.EVENTS)
    return answer


async def settle_dependants(uow_factory: UnitOfWorkFactory, clock: Clock) -> int:
    """Let jobs go on that have waited for others, and end those that never can. Returns how much news there was.

    The news of a job is taken in the transaction that acts on it, so that none is lost. A job that ends here is news
    for the jobs that wait for it.
    """
    async with uow_factory(one_statement=True) as uow:
        ids = await uow.dependencies.with_news(_BATCH)
    if not ids:
        return 0
    async with uow_factory() as uow:
        # Rows of jobs come before news, as where jobs start and end.
        rows = await uow.reservations.lock(ids)
        taken = await uow.dependencies.take_news(ids)
        needed = await uow.dependencies.of(ids)
        now = clock.now()
        changes = []
        fewer_needs = []
        for job_id, row in rows.items():
            dependencies = needed.get(job_id, ())
            event = settle(dependencies)
            change = None if event is None else decide(row, event, now)
            if change is not None:
                changes.append(change)
            elif row.held and still_open(dependencies) != list(dependencies):
                fewer_needs.append(job_id)
        await carry_out(uow, changes)
        await wake_planner_for(uow, fewer_needs)
    return taken


async def wake_planner_for(uow: UnitOfWork, job_ids: Sequence[str]) -> None:
    """Have the planner read these jobs again."""
    if job_ids:
        messages = [JobMessage(kind="changed", id=job_id).model_dump() for job_id in job_ids]
        await uow.queue.send(QueueName.GPU_JOBS, messages)
        uow.wake(Channel.GPU_JOBS)


async def promise_dependants_anew(uow: UnitOfWork, change: DecidedChange) -> None:
    """Give up the promised starts that a longer job puts off, of jobs that wait for it and of those that wait for them.

    Extending a job asks for that; the planner promises these jobs other starts.
    """
    end = next((effect.to for effect in change.effects if isinstance(effect, SetRangeEnd)), None)
    await wake_planner_for(uow, await uow.dependencies.give_up_starts(change.after.id, end))


def _require(ids: Sequence[str], there: set[str]) -> None:
    missing = [(place, job_id) for place, job_id in enumerate(ids) if job_id not in there]
    if missing:
        named = ", ".join(job_id for _, job_id in missing[:_SHOWN])
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        detail = f"You have no job {named}{more} to wait for. `gpu-dev list --all` shows your jobs."
        fields = [
            RuleBreach(UnknownJobError.code, f"after.{place}.job: you have no job {job_id}")
            for place, job_id in missing
        ]
        raise UnknownJobError(detail, fields[:_MOST_NAMED])

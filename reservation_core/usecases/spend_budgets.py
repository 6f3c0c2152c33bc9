"""Charge requests to the budgets of the calling token, or refuse them."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.domain.errors import NotPermittedError
from reservation_core.domain.jobs.retries import tries
from reservation_core.domain.model import Reservation
from reservation_core.domain.people.token_budgets import Ask, ask_for, refused
from reservation_core.ports.people.identities import Principal

_SUMMED_AT_ONCE = 20_000


def ask_of(job: Reservation, before: timedelta = timedelta(0)) -> Ask:
    """What a job asks for beyond the duration `before`: all its tries, an array those of all its elements.

    In a booking it is nothing, which has paid.
    """
    elements = 1 if job.array is None else job.array.size
    gpus = 0 if job.booking_id is not None else job.gpus * job.nodes * tries(job) * elements
    return ask_for(job.id, gpus, job.duration, before)


async def spend(uow: UnitOfWork, principal: Principal, asks: Sequence[Ask], now: datetime) -> None:
    """Charge requests, in the transaction that stores them. Its locks must be the last ones.

    Raises NotPermittedError when a budget has ended or is too small: the transaction must then be rolled back.
    """
    if principal.budget_id is None:
        return
    budgets = await uow.budgets.hold(principal.budget_id)
    broken = refused(budgets, sum(ask.end_us - ask.start_us for ask in asks), now)
    if broken is not None:
        raise NotPermittedError(broken.detail, [broken])
    await uow.budgets.charge(budgets, asks)


async def sum_up_refunds(uow_factory: UnitOfWorkFactory) -> int:
    """Subtract refunds from the counters of budgets, which does not change their balance; returns their number."""
    summed = 0
    while True:
        async with uow_factory() as uow:
            rows = await uow.budgets.sum_up_refunds(_SUMMED_AT_ONCE)
        summed += rows
        if rows < _SUMMED_AT_ONCE:
            return summed

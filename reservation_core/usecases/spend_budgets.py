"""Charging what is asked for to the budgets of the token that asks, or refusing it."""

from collections.abc import Sequence
from datetime import datetime

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.domain.errors import NotPermittedError
from reservation_core.domain.people.token_budgets import Ask, refused
from reservation_core.ports.people.identities import Principal

_SUMMED_AT_ONCE = 20_000


async def spend(uow: UnitOfWork, principal: Principal, asks: Sequence[Ask], now: datetime) -> None:
    """Charge these, in the transaction that stores what they are for. Its locks come last: take no other after it.

    Raises NotPermittedError where a budget ended or has not enough left: then nothing of the transaction is to stay.
    """
    if principal.budget_id is None:
        return
    line = await uow.budgets.hold(principal.budget_id)
    broken = refused(line, sum(ask.end_us - ask.start_us for ask in asks), now)
    if broken is not None:
        raise NotPermittedError(broken.detail, [broken])
    await uow.budgets.charge(line, asks)


async def sum_up_refunds(uow_factory: UnitOfWorkFactory) -> int:
    """Take what was given back off the counters of budgets, which is the same to all who ask; returns how many rows."""
    summed = 0
    while True:
        async with uow_factory() as uow:
            rows = await uow.budgets.sum_up_refunds(_SUMMED_AT_ONCE)
        summed += rows
        if rows < _SUMMED_AT_ONCE:
            return summed

"""Run an action in a transaction and roll it back, so that a preview uses the action itself."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory

T = TypeVar("T")


class _UndoneError(Exception):
    """Rolls back the transaction of a rehearsal."""


async def rehearse(uow_factory: UnitOfWorkFactory, act: Callable[[UnitOfWork], Awaitable[T]]) -> T:
    """Return the result of `act`, then roll back without wake-ups. Raises whatever `act` raises.

    Deferred constraints are checked, too. Locks are held until the rollback.
    """
    answers: list[T] = []
    with suppress(_UndoneError):
        async with uow_factory() as uow:
            answers.append(await act(uow))
            await uow.bookings.check_deferred_constraints()
            raise _UndoneError
    return answers[0]

"""Rehearsing: doing a thing in a transaction and undoing it, so that the verdict is the one of the deed itself."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory

T = TypeVar("T")


class _UndoneError(Exception):
    """Ends the transaction of a rehearsal."""


async def rehearse(uow_factory: UnitOfWorkFactory, act: Callable[[UnitOfWork], Awaitable[T]]) -> T:
    """What `act` answers; nothing of it stays and nobody is woken. Raises whatever `act` raises.

    What the database judges only at a commit is judged, too. Locks that `act` takes are held until it is undone.
    """
    answers: list[T] = []
    with suppress(_UndoneError):
        async with uow_factory() as uow:
            answers.append(await act(uow))
            await uow.bookings.judge_now()
            raise _UndoneError
    return answers[0]

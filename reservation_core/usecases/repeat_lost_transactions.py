"""Doing a transaction again that the database ended in favour of others."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from reservation_core.ports.transactions import TransactionLostError

T = TypeVar("T")

_TRIES = 5


async def until_not_lost(act: Callable[[], Awaitable[T]]) -> T:
    """Do `act`, which opens its own transaction, until the database lets it through; TransactionLostError at last.

    In a deadlock one of those in it is ended and all others go on: the next try finds them gone.
    """
    for _ in range(_TRIES - 1):
        try:
            return await act()
        except TransactionLostError:
            continue
    return await act()

"""Repeat transactions that the database ended after a deadlock."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from reservation_core.ports.transactions import TransactionLostError

T = TypeVar("T")

_TRIES = 5


async def repeat_lost(act: Callable[[], Awaitable[T]]) -> T:
    """Run `act`, which opens its own transaction, again after each TransactionLostError, up to a bound.

    A deadlock ends one of its transactions; the others go on, so a repetition succeeds soon.
    """
    for _ in range(_TRIES - 1):
        try:
            return await act()
        except TransactionLostError:
            continue
    return await act()

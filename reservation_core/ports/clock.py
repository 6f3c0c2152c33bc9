"""Where the time comes from."""

from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Where `now` comes from."""

    def now(self) -> datetime:
        """The current time, timezone-aware UTC."""
        ...


class StepKeeper(Protocol):
    """Keeps the ledger's time even when the database's clock steps."""

    def leading(self, epoch: int) -> AbstractAsyncContextManager[None]:
        """While the block runs, this process leads in `epoch` and makes up for steps of the database's clock.

        First it looks what time it is: nothing is decided by a time that the leader before has corrected.
        Raises DatabaseUnavailableError.
        """
        ...

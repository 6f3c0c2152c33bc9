"""Something of the database's, read again and again for who decides without asking it each time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from reservation_core.adapters.postgres.driver_errors import told_as_unavailable
from reservation_core.ports.transactions import DatabaseUnavailableError, TransactionLostError

LEDGER_STATEMENT_S = 10.0
"""For a statement of these readings: what takes longer is asked again, on another connection where need be."""
_log = structlog.get_logger(__name__)
T = TypeVar("T")


class RepeatedReading(Generic[T]):
    """Reads every `every_s` seconds; what is older than `patience_s` is no knowledge any more.

    `what` names it in the log.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        every_s: float,
        patience_s: float,
        read: Callable[[AsyncConnection], Awaitable[T]],
        what: str,
    ) -> None:
        self._engine = engine
        self._every_s = every_s
        self._patience_s = patience_s
        self._read_it = read
        self._what = what
        self._read_at: float | None = None

    def known(self) -> bool:
        """Whether it is known. Nothing may be placed while it is not."""
        return self._read_at is not None and asyncio.get_running_loop().time() - self._read_at < self._patience_s

    async def keep(self, tell: Callable[[T], None], known_again: Callable[[], None]) -> None:
        """Read and tell, for ever; `known_again` whenever it was not known before."""
        while True:
            begun = asyncio.get_running_loop().time()
            try:
                found = await self._read()
            except (DatabaseUnavailableError, TransactionLostError, TimeoutError) as error:
                why = str(error) or "no answer in time"
                _log.warning(f"{self._what} could not be read; trying again", error=why)
            else:
                known = self.known()
                self._read_at = begun
                tell(found)
                if not known:
                    known_again()
            await asyncio.sleep(self._every_s)

    async def _read(self) -> T:
        # A connection may be dead without anybody being told: what takes so long is no knowledge any more anyway.
        async with asyncio.timeout(self._patience_s):
            with told_as_unavailable() as reached:
                async with self._engine.connect() as connection:
                    reached.connected = True
                    return await self._read_it(connection)

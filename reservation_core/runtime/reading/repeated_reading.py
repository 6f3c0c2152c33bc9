"""Something of the database's, read again and again for who decides without asking it each time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from reservation_core.adapters.postgres.connection.driver_errors import told_as_unavailable
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.runtime.loops.loops import Loop

LEDGER_STATEMENT_S = 10.0
"""For a statement of these readings: what takes longer is asked again, on another connection where need be."""
T = TypeVar("T")


class RepeatedReading(Generic[T]):
    """Reads every `every_s` seconds; what is older than `patience_s` is no knowledge any more.

    `what` names it in errors.
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

    async def keep(self, loop: Loop, tell: Callable[[T], None], known_again: Callable[[], None]) -> None:
        """Read and tell, for ever; `known_again` whenever it was not known before. `loop` is this reading's."""

        async def once() -> None:
            begun = asyncio.get_running_loop().time()
            found = await self._read()
            known = self.known()
            self._read_at = begun
            tell(found)
            if not known:
                known_again()

        await loop.repeat(once, rest_s=self._every_s, longest_s=self._every_s)

    async def _read(self) -> T:
        # A connection may be dead without anybody being told: what takes so long is no knowledge any more anyway.
        try:
            async with asyncio.timeout(self._patience_s):
                with told_as_unavailable() as reached:
                    async with self._engine.connect() as connection:
                        reached.connected = True
                        return await self._read_it(connection)
        except TimeoutError:
            raise DatabaseUnavailableError(f"{self._what} could not be read: no answer in time") from None

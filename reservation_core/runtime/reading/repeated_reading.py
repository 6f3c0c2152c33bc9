"""Data of the database that is read regularly, for decisions without a query."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from reservation_core.adapters.postgres.connection.driver_errors import map_to_unavailable
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.runtime.loops.loops import Loop

LEDGER_STATEMENT_S = 10.0
"""The time limit of a statement; after it, the read is repeated, if needed on another connection."""
T = TypeVar("T")


class RepeatedReading(Generic[T]):
    """Reads every `every_s` seconds; data older than `patience_s` counts as unknown. `what` names it in errors."""

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
        """Whether the data is known. While it is not, nothing may be placed."""
        return self._read_at is not None and asyncio.get_running_loop().time() - self._read_at < self._patience_s

    async def keep(self, loop: Loop, tell: Callable[[T], None], known_again: Callable[[], None]) -> None:
        """Read for ever and pass the data to `tell`; call `known_again` when it was unknown before."""

        async def once() -> None:
            begun = asyncio.get_running_loop().time()
            data = await self._read()
            was_known = self.known()
            self._read_at = begun
            tell(data)
            if not was_known:
                known_again()

        await loop.repeat(once, rest_s=self._every_s, longest_s=self._every_s)

    async def _read(self) -> T:
        # A connection may be dead without an error, and a slower answer would be too old anyway.
        try:
            async with asyncio.timeout(self._patience_s):
                with map_to_unavailable() as reached:
                    async with self._engine.connect() as connection:
                        reached.connected = True
                        return await self._read_it(connection)
        except TimeoutError:
            raise DatabaseUnavailableError(f"{self._what} could not be read: no answer in time") from None

"""The open connections of this process: refreshed in the database, warned before their job ends, and ended with it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta

from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.domain.sessions.ways_in import Way, due_warnings, warning_text
from reservation_core.ports.clock import Clock
from reservation_core.ports.sessions.connections import HeldConnection
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.runtime.loops.loops import Loop
from reservation_core.usecases.sessions.enter import Entered, Visitor, enter

REFRESH_S = 5.0
_NOT_ALLOWED = "This connection ends: the job has ended, or your access was withdrawn."
_STOPPING = "The server is stopping."


class Connection:
    """One connection. `over` is set when it must end, and `why` says why."""

    def __init__(self, entered: Entered) -> None:
        self.entered = entered
        self.over = asyncio.Event()
        self.why = ""
        self.stopping = False
        """Whether it ends only because this process does: kept terminals go on."""
        self.show: Callable[[str], None] | None = None
        """Shows a message on its terminal."""
        self.last_byte_at = entered.opened_at
        self._moved = False
        self._warned: frozenset[tuple[datetime, timedelta]] = frozenset()

    def note_bytes(self) -> None:
        """Note that something was sent or received."""
        self._moved = True

    def held(self) -> HeldConnection:
        """The connection as it is stored."""
        entered = self.entered
        return HeldConnection(
            entered.connection_id, entered.noted, entered.pod.attempt, entered.opened_at, self.last_byte_at
        )

    def end(self, why: str) -> None:
        self.why = why
        self.over.set()

    def refresh(self, now: datetime) -> None:
        """Take the bytes since the last call as of now."""
        if self._moved:
            self._moved = False
            self.last_byte_at = max(now, self.last_byte_at)

    def warn(self, ends_at: datetime, now: datetime) -> None:
        """Show a warning if one is due that was not shown."""
        due = due_warnings(self.entered.opened_at, ends_at, now)
        if due - self._warned and self.show is not None:
            self.show(warning_text(self.entered.pod.reservation_id, ends_at, now))
        self._warned |= due


class Connections:
    """All connections of this process; a user may have `most`, in all processes together."""

    def __init__(self, uow: UnitOfWorkFactory, clock: Clock, most: int) -> None:
        self._uow = uow
        self._clock = clock
        self._most = most
        self._open: dict[int, Connection] = {}
        self._closed: list[int] = []

    @property
    def open(self) -> list[Connection]:
        return [*self._open.values()]

    @asynccontextmanager
    async def enter(self, visitor: Visitor, reference: str, rank: int, way: Way) -> AsyncIterator[Connection]:
        """Be connected to the job with this id or name during the block.

        Raises NotFoundError, JobNotRunningError, TooManyConnectionsError and DatabaseUnavailableError.
        """
        async with self._uow() as uow:
            entered = await enter(uow, visitor, reference, rank, way, self._most, self._clock.now())
        connection = Connection(entered)
        self._open[entered.connection_id] = connection
        try:
            yield connection
        finally:
            del self._open[entered.connection_id]
            self._closed.append(entered.connection_id)
            with suppress(DatabaseUnavailableError):  # the next refresh tries again
                await self._forget_closed()

    async def run(self, loop: Loop) -> None:
        """Refresh all connections again and again, until cancelled."""
        await loop.repeat(self.refresh, rest_s=REFRESH_S, rests_first=True)

    async def refresh(self) -> None:
        """Store what moves, end what may not go on, and warn before ends. Raises DatabaseUnavailableError."""
        await self._forget_closed()
        now = self._clock.now()
        for connection in self._open.values():
            connection.refresh(now)
        held = [*self._open.values()]
        try:
            async with self._uow() as uow:
                going_on = await uow.connections.refresh([one.held() for one in held], now) if held else {}
                await uow.connections.forget_abandoned(now)
        finally:  # one that was closed meanwhile may have been stored again
            self._closed += [one.entered.connection_id for one in held if one.entered.connection_id not in self._open]
        for connection in held:
            number = connection.entered.connection_id
            if number not in self._open:
                continue
            if number not in going_on:
                connection.end(_NOT_ALLOWED)
            elif (ends_at := going_on[number]) is not None:
                connection.warn(ends_at, now)
        await self._forget_closed()

    def stop(self) -> None:
        """End all connections, because this process is about to end."""
        for connection in self._open.values():
            connection.stopping = True
            connection.end(_STOPPING)

    async def _forget_closed(self) -> None:
        closed, self._closed = self._closed, []
        if not closed:
            return
        try:
            async with self._uow() as uow:
                await uow.connections.close(closed, self._clock.now())
        except BaseException:  # also when cancelled: the next refresh tries again
            self._closed += closed
            raise

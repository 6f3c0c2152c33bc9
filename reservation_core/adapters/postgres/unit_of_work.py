"""One transaction, and every repository on it. Nobody commits but this."""

import errno
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cached_property

import asyncpg
from pgmq.sqlalchemy_async_queue import PGMQueue
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from reservation_core.adapters.pgmq.queue import PgmqQueue
from reservation_core.adapters.postgres.events import PostgresEvents
from reservation_core.adapters.postgres.idempotency import PostgresIdempotency
from reservation_core.adapters.postgres.identities import PostgresIdentities
from reservation_core.adapters.postgres.inventory import PostgresInventory
from reservation_core.adapters.postgres.measurements import PostgresMeasurements
from reservation_core.adapters.postgres.planning import PostgresPlanning
from reservation_core.adapters.postgres.pod_logs import PostgresPodLogs
from reservation_core.adapters.postgres.reservations import PostgresReservations
from reservation_core.adapters.postgres.unknown_pods import PostgresUnknownPods
from reservation_core.adapters.postgres.wakeups import PostgresWakeups
from reservation_core.ports.transactions import DatabaseUnavailableError, UnitOfWork, UnitOfWorkFactory
from reservation_core.ports.wakeups import Channel

# Connection trouble, as the driver says it below SQLAlchemy. 57P01..3: the server is going down or coming up.
# 40P01: this transaction was ended to break a deadlock; nothing of it happened, and the next try will do.
_UNAVAILABLE_SQLSTATES = ("08", "57P0", "53300", "40P01")
# Below SQLAlchemy or without it. InternalClientError: the connection was lost in the middle of something, and the
# driver no longer knows where it is.
_UNAVAILABLE_ERRORS = (
    ConnectionError,
    TimeoutError,
    socket.gaierror,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)
# The network's trouble that has no exception class of its own.
_UNREACHABLE = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN, errno.ENETRESET})
_DRIVER_ERRORS = (DBAPIError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)


class PostgresUnitOfWork:
    """See ports.transactions.UnitOfWork."""

    def __init__(self, connection: AsyncConnection, client: PGMQueue) -> None:
        self._connection = connection
        self._client = client
        self.wakes: set[Channel] = set()

    @cached_property
    def queue(self) -> PgmqQueue:
        """The queues."""
        return PgmqQueue(self._client, self._connection)

    @cached_property
    def reservations(self) -> PostgresReservations:
        """Reservations and their ledger."""
        return PostgresReservations(self._connection, self.queue)

    @cached_property
    def planning(self) -> PostgresPlanning:
        """The planner's reads and writes."""
        return PostgresPlanning(self._connection)

    @cached_property
    def events(self) -> PostgresEvents:
        """The record."""
        return PostgresEvents(self._connection)

    @cached_property
    def inventory(self) -> PostgresInventory:
        """Nodes and GPUs."""
        return PostgresInventory(self._connection, self.queue)

    @cached_property
    def unknown_pods(self) -> PostgresUnknownPods:
        """Pods that nobody accounts for."""
        return PostgresUnknownPods(self._connection, self.queue)

    @cached_property
    def identities(self) -> PostgresIdentities:
        """Users and tokens."""
        return PostgresIdentities(self._connection)

    @cached_property
    def idempotency(self) -> PostgresIdempotency:
        """Answers kept for repeated requests."""
        return PostgresIdempotency(self._connection)

    @cached_property
    def measurements(self) -> PostgresMeasurements:
        """What metrics are made of."""
        return PostgresMeasurements(self._connection)

    @cached_property
    def pod_logs(self) -> PostgresPodLogs:
        """Ends of logs whose pods are gone."""
        return PostgresPodLogs(self._connection)

    async def hold_pod_lock(self, reservation_id: str) -> None:
        """Wait for this reservation's pod lock and keep it until the transaction ends."""
        await self._connection.execute(
            text("SELECT pg_advisory_xact_lock(hashtextextended(:id, 0))"), {"id": reservation_id}
        )

    async def try_pod_locks(self, reservation_ids: Sequence[str]) -> set[str]:
        """Take those of these pod locks that are free."""
        found = await self._connection.execute(
            text(
                "SELECT id FROM (SELECT id, pg_try_advisory_xact_lock(hashtextextended(id, 0)) AS taken "
                "FROM unnest(CAST(:ids AS text[])) AS i (id)) AS locks WHERE taken"
            ),
            {"ids": sorted(reservation_ids)},
        )
        return {row.id for row in found}

    def wake(self, channel: Channel) -> None:
        """Wake listeners once this transaction has committed."""
        self.wakes.add(channel)


def unit_of_work_factory(engine: AsyncEngine, client: PGMQueue, wakeups: PostgresWakeups) -> UnitOfWorkFactory:
    """Transactions on an engine; their wake-ups go out after commit."""

    each_by_itself = engine.execution_options(isolation_level="AUTOCOMMIT")

    @asynccontextmanager
    async def unit_of_work(*, one_statement: bool = False) -> AsyncIterator[UnitOfWork]:
        connected = False
        try:
            async with each_by_itself.connect() if one_statement else engine.begin() as connection:
                connected = True
                uow = PostgresUnitOfWork(connection, client)
                yield uow
        except (*_DRIVER_ERRORS, PoolTimeoutError) as error:
            # Whatever the system says on the way there means that one can't get there: no such socket, no such host,
            # or, when several addresses were tried, a bare OSError that tells them all.
            if (isinstance(error, OSError) and not connected) or _unavailable(error):
                raise DatabaseUnavailableError(f"the database is not available ({type(error).__name__})") from error
            raise
        for channel in uow.wakes:
            wakeups.wake(channel)

    return unit_of_work


def _unavailable(error: BaseException) -> bool:
    if isinstance(error, PoolTimeoutError) or _is_connection_trouble(error):
        return True
    if isinstance(error, DBAPIError):
        if error.connection_invalidated:
            return True
        cause = error.orig
        sqlstate = getattr(cause, "sqlstate", None) or ""
        driver_error = getattr(cause, "__cause__", None)
        return sqlstate.startswith(_UNAVAILABLE_SQLSTATES) or (
            isinstance(driver_error, OSError) or _is_connection_trouble(driver_error)
        )
    sqlstate = getattr(error, "sqlstate", None) or ""
    return sqlstate.startswith(_UNAVAILABLE_SQLSTATES)


def _is_connection_trouble(error: BaseException | None) -> bool:
    if isinstance(error, OSError) and error.errno in _UNREACHABLE:
        return True
    # A value that the driver can't send is an InterfaceError too, and a ValueError: waiting would not help it.
    return isinstance(error, _UNAVAILABLE_ERRORS) and not isinstance(error, ValueError)

"""One transaction, and every repository on it. Nobody commits but this."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import cached_property

from pgmq.sqlalchemy_async_queue import PGMQueue
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from reservation_core.adapters.postgres.bookings.booking_life import PostgresBookingLife
from reservation_core.adapters.postgres.bookings.bookings import PostgresBookings
from reservation_core.adapters.postgres.bookings.calendar_due import PostgresCalendarDue
from reservation_core.adapters.postgres.bookings.calendar_feeds import PostgresCalendarFeeds
from reservation_core.adapters.postgres.bookings.maintenance import PostgresMaintenance
from reservation_core.adapters.postgres.connection.driver_errors import told_as_unavailable
from reservation_core.adapters.postgres.connection.engine import STATEMENT_OPTION
from reservation_core.adapters.postgres.connection.queries import statement
from reservation_core.adapters.postgres.connection.queues import PgmqQueue
from reservation_core.adapters.postgres.connection.shared_clock import SharedClock
from reservation_core.adapters.postgres.connection.wakeups import PostgresWakeups
from reservation_core.adapters.postgres.history.audit import PostgresAudit
from reservation_core.adapters.postgres.history.audit_chain import PostgresAuditChain
from reservation_core.adapters.postgres.history.events import PostgresEvents
from reservation_core.adapters.postgres.history.idempotency import PostgresIdempotency
from reservation_core.adapters.postgres.history.retention import PostgresRetention
from reservation_core.adapters.postgres.jobs.pod_locks import check_still_held, held
from reservation_core.adapters.postgres.jobs.pod_logs import PostgresPodLogs
from reservation_core.adapters.postgres.jobs.reservations import PostgresReservations
from reservation_core.adapters.postgres.jobs.unknown_pods import PostgresUnknownPods
from reservation_core.adapters.postgres.nodes.inventory import PostgresInventory
from reservation_core.adapters.postgres.people.belongings import PostgresBelongings
from reservation_core.adapters.postgres.people.identities import PostgresIdentities
from reservation_core.adapters.postgres.people.notices import PostgresNotices
from reservation_core.adapters.postgres.people.token_budgets import PostgresBudgets
from reservation_core.adapters.postgres.people.used_proofs import PostgresUsedProofs
from reservation_core.adapters.postgres.planning.measurements import PostgresMeasurements
from reservation_core.adapters.postgres.planning.planning import PostgresPlanning
from reservation_core.adapters.postgres.pods.pod_endings import PostgresPodEndings
from reservation_core.adapters.postgres.pods.pod_reports import PostgresAdmissions
from reservation_core.adapters.postgres.policy.entitlements import PostgresEntitlements
from reservation_core.adapters.postgres.policy.policies import PostgresPolicies
from reservation_core.adapters.postgres.policy.projects import PostgresProjects
from reservation_core.adapters.postgres.policy.usage import PostgresUsage
from reservation_core.adapters.postgres.sealing import PLAIN, Sealing
from reservation_core.domain.network.replica_lag import ServerProgress
from reservation_core.ports.transactions import UnitOfWork, UnitOfWorkFactory
from reservation_core.ports.wakeups import Channel

_TRANSACTION = "READ COMMITTED"
_EACH_BY_ITSELF = "AUTOCOMMIT"
# For a statement that no BEGIN goes before, which would have found a silent server: such statements are short.
_ALONE_S = 15.0


class PostgresUnitOfWork:
    """See ports.transactions.UnitOfWork."""

    def __init__(
        self, connection: AsyncConnection, client: PGMQueue, clock: SharedClock | None = None, sealing: Sealing = PLAIN
    ) -> None:
        self._connection = connection
        self._client = client
        self._clock = clock
        self._sealing = sealing
        self.wakes: set[Channel] = set()

    @cached_property
    def queue(self) -> PgmqQueue:
        """The queues."""
        return PgmqQueue(self._client, self._connection)

    @cached_property
    def reservations(self) -> PostgresReservations:
        """Reservations and their ledger."""
        return PostgresReservations(self._connection, self.queue, self._clock, self._sealing)

    @cached_property
    def planning(self) -> PostgresPlanning:
        """The planner's reads and writes."""
        return PostgresPlanning(self._connection, self._clock)

    @cached_property
    def events(self) -> PostgresEvents:
        """The record."""
        return PostgresEvents(self._connection)

    @cached_property
    def audit(self) -> PostgresAudit:
        """The record, to search it."""
        return PostgresAudit(self._connection)

    @cached_property
    def audit_chain(self) -> PostgresAuditChain:
        """The record's chain of digests."""
        return PostgresAuditChain(self._connection)

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
    def budgets(self) -> PostgresBudgets:
        """Budgets of tokens."""
        return PostgresBudgets(self._connection)

    @cached_property
    def idempotency(self) -> PostgresIdempotency:
        """Answers kept for repeated requests."""
        return PostgresIdempotency(self._connection, self._sealing)

    @cached_property
    def measurements(self) -> PostgresMeasurements:
        """What metrics are made of."""
        return PostgresMeasurements(self._connection)

    @cached_property
    def pod_logs(self) -> PostgresPodLogs:
        """Ends of logs whose pods are gone."""
        return PostgresPodLogs(self._connection)

    @cached_property
    def notices(self) -> PostgresNotices:
        """Who is told where."""
        return PostgresNotices(self._connection, self._sealing)

    @cached_property
    def bookings(self) -> PostgresBookings:
        """Bookings and the calendar."""
        return PostgresBookings(self._connection, self._sealing)

    @cached_property
    def booking_life(self) -> PostgresBookingLife:
        """Bookings as time passes."""
        return PostgresBookingLife(self._connection, self.queue)

    @cached_property
    def maintenance(self) -> PostgresMaintenance:
        """Maintenance windows."""
        return PostgresMaintenance(self._connection)

    @cached_property
    def calendar_due(self) -> PostgresCalendarDue:
        """What is due in the calendar."""
        return PostgresCalendarDue(self._connection, self._clock)

    @cached_property
    def calendar_feeds(self) -> PostgresCalendarFeeds:
        """Private calendar addresses."""
        return PostgresCalendarFeeds(self._connection)

    async def now(self) -> datetime:
        """The ledger's time, in UTC."""
        found = await self._connection.execute(statement("ledger_time"))
        at: datetime = found.scalar_one().astimezone(UTC)
        return at if self._clock is None else self._clock.judged(at)

    async def progress(self) -> ServerProgress:
        """How far this server is."""
        row = (await self._connection.execute(statement("server_progress"))).one()
        return ServerProgress(row.follows, row.position, row.system, row.timeline, row.at.astimezone(UTC))

    @cached_property
    def policies(self) -> PostgresPolicies:
        """The policy and what counts against it."""
        return PostgresPolicies(self._connection)

    @cached_property
    def projects(self) -> PostgresProjects:
        """Projects and their members."""
        return PostgresProjects(self._connection)

    @cached_property
    def usage(self) -> PostgresUsage:
        """Who held what, and fair shares."""
        return PostgresUsage(self._connection)

    @cached_property
    def entitlements(self) -> PostgresEntitlements:
        """Bookings whose slot it is."""
        return PostgresEntitlements(self._connection)

    @cached_property
    def admissions(self) -> PostgresAdmissions:
        """Pods of others that use bookings."""
        return PostgresAdmissions(self._connection)

    @cached_property
    def pod_endings(self) -> PostgresPodEndings:
        """What is remembered of pods that people made."""
        return PostgresPodEndings(self._connection)

    @cached_property
    def belongings(self) -> PostgresBelongings:
        """What users have that is not over."""
        return PostgresBelongings(self._connection)

    @cached_property
    def used_proofs(self) -> PostgresUsedProofs:
        """Proofs that were used to sign in."""
        return PostgresUsedProofs(self._connection)

    @cached_property
    def retention(self) -> PostgresRetention:
        """What is removed because it is old."""
        return PostgresRetention(self._connection)

    def wake(self, channel: Channel) -> None:
        """Wake listeners once this transaction has committed."""
        self.wakes.add(channel)


class PostgresHeldPods:
    """See ports.transactions.HeldPods."""

    def __init__(self, connection: AsyncConnection, units: "PostgresUnitsOfWork", ids: frozenset[str]) -> None:
        self._connection = connection
        self._units = units
        self._ids = ids

    @property
    def ids(self) -> frozenset[str]:
        """Whose lock is held."""
        return self._ids

    @asynccontextmanager
    async def work(self, *, one_statement: bool = False) -> AsyncIterator[UnitOfWork]:
        """A unit of work on the connection that holds the locks."""
        check_still_held(self._connection)
        with told_as_unavailable() as reached:
            reached.connected = True
            await self._connection.execution_options(isolation_level=_EACH_BY_ITSELF if one_statement else _TRANSACTION)
            async with self._connection.begin():
                uow = self._units.on(self._connection)
                yield uow
        self._units.wake(uow)


class PostgresUnitsOfWork:
    """See ports.transactions.UnitOfWorkFactory. Wake-ups go out after commit."""

    def __init__(
        self,
        engine: AsyncEngine,
        client: PGMQueue,
        wakeups: PostgresWakeups,
        clock: SharedClock | None = None,
        sealing: Sealing = PLAIN,
        *,
        connection_s: float | None = None,
        alone_s: float = _ALONE_S,
    ) -> None:
        self._clock = clock
        self._sealing = sealing
        self._engine = engine
        self._connection_s = connection_s
        self._holding = engine.execution_options(isolation_level=_EACH_BY_ITSELF)
        self._each_by_itself = self._holding.execution_options(**{STATEMENT_OPTION: alone_s})
        self._client = client
        self._wakeups = wakeups

    @asynccontextmanager
    async def __call__(self, *, one_statement: bool = False) -> AsyncIterator[UnitOfWork]:
        """A transaction, or with `one_statement` one for each statement."""
        opened = (self._each_by_itself if one_statement else self._engine).connect()
        with told_as_unavailable() as reached:
            async with AsyncExitStack() as closing:
                async with asyncio.timeout(self._connection_s):
                    connection = await closing.enter_async_context(opened)
                reached.connected = True
                if not one_statement:
                    await closing.enter_async_context(connection.begin())
                uow = self.on(connection)
                yield uow
        self.wake(uow)

    def bounded(self, *, connection: timedelta, statement: timedelta) -> "PostgresUnitsOfWork":
        """See ports.transactions.UnitOfWorkFactory."""
        engine = self._engine.execution_options(**{STATEMENT_OPTION: statement.total_seconds()})
        return PostgresUnitsOfWork(
            engine,
            self._client,
            self._wakeups,
            self._clock,
            self._sealing,
            connection_s=connection.total_seconds(),
            alone_s=min(connection, statement).total_seconds(),
        )

    @asynccontextmanager
    async def hold_pods(
        self, reservation_ids: Sequence[str], *, patience: timedelta = timedelta(0)
    ) -> AsyncIterator[PostgresHeldPods]:
        """Pod locks, on a connection that is taken from the pool while the block runs."""
        async with AsyncExitStack() as closing:
            with told_as_unavailable() as reached:
                connection = await closing.enter_async_context(self._holding.connect())
                reached.connected = True
                ids = await closing.enter_async_context(held(connection, reservation_ids, patience))
            yield PostgresHeldPods(connection, self, ids)

    def on(self, connection: AsyncConnection) -> PostgresUnitOfWork:
        """The repositories on a connection."""
        return PostgresUnitOfWork(connection, self._client, self._clock, self._sealing)

    def wake(self, uow: PostgresUnitOfWork) -> None:
        """Tell listeners what was committed."""
        for channel in uow.wakes:
            self._wakeups.wake(channel)


def unit_of_work_factory(
    engine: AsyncEngine,
    client: PGMQueue,
    wakeups: PostgresWakeups,
    clock: SharedClock | None = None,
    sealing: Sealing = PLAIN,
) -> UnitOfWorkFactory:
    """Transactions on an engine; their wake-ups go out after commit.

    Where the database's time is not what `clock` has counted, `clock` counts; without one, the database's time does.
    """
    return PostgresUnitsOfWork(engine, client, wakeups, clock, sealing)

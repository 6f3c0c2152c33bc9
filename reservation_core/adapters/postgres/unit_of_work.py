"""One transaction, and every repository on it. Nobody commits but this.

`async with uow_factory() as uow:` is one transaction, committed when the block ends without an exception and rolled
back otherwise.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import cached_property

from pgmq.sqlalchemy_async_queue import PGMQueue
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from reservation_core.adapters.postgres.bookings.booking_life import BookingLife
from reservation_core.adapters.postgres.bookings.bookings import Bookings
from reservation_core.adapters.postgres.bookings.calendar_due import CalendarDue
from reservation_core.adapters.postgres.bookings.calendar_feeds import CalendarFeeds
from reservation_core.adapters.postgres.bookings.maintenance import Maintenance
from reservation_core.adapters.postgres.connection.driver_errors import map_to_unavailable
from reservation_core.adapters.postgres.connection.engine import STATEMENT_OPTION
from reservation_core.adapters.postgres.connection.queries import statement
from reservation_core.adapters.postgres.connection.queues import Queue
from reservation_core.adapters.postgres.connection.shared_clock import SharedClock
from reservation_core.adapters.postgres.connection.wakeups import PostgresWakeups
from reservation_core.adapters.postgres.disks.disks import Disks
from reservation_core.adapters.postgres.disks.snapshots import Snapshots
from reservation_core.adapters.postgres.gpu_use.gpu_health import GpuHealth
from reservation_core.adapters.postgres.gpu_use.gpu_use import GpuUse
from reservation_core.adapters.postgres.history.audit import Audit
from reservation_core.adapters.postgres.history.audit_chain import AuditChain
from reservation_core.adapters.postgres.history.events import Events
from reservation_core.adapters.postgres.history.idempotency import Idempotency
from reservation_core.adapters.postgres.history.retention import Retention
from reservation_core.adapters.postgres.jobs.arrays import Arrays
from reservation_core.adapters.postgres.jobs.dependencies import Dependencies
from reservation_core.adapters.postgres.jobs.job_files import JobFiles
from reservation_core.adapters.postgres.jobs.leases import Leases
from reservation_core.adapters.postgres.jobs.pod_locks import check_still_held, held
from reservation_core.adapters.postgres.jobs.pod_logs import PodLogs
from reservation_core.adapters.postgres.jobs.reservations import Reservations
from reservation_core.adapters.postgres.jobs.unknown_pods import UnknownPods
from reservation_core.adapters.postgres.nodes.inventory import Inventory
from reservation_core.adapters.postgres.people.belongings import Belongings
from reservation_core.adapters.postgres.people.identities import Identities
from reservation_core.adapters.postgres.people.notices import Notices
from reservation_core.adapters.postgres.people.token_budgets import Budgets
from reservation_core.adapters.postgres.people.used_proofs import UsedProofs
from reservation_core.adapters.postgres.people.user_secrets import UserSecrets
from reservation_core.adapters.postgres.planning.learnt_waits import LearntWaitsRow
from reservation_core.adapters.postgres.planning.measurements import Measurements
from reservation_core.adapters.postgres.planning.planning import Planning
from reservation_core.adapters.postgres.pods.pod_endings import PodEndings
from reservation_core.adapters.postgres.pods.pod_reports import Admissions
from reservation_core.adapters.postgres.policy.entitlements import Entitlements
from reservation_core.adapters.postgres.policy.policies import Policies
from reservation_core.adapters.postgres.policy.projects import Projects
from reservation_core.adapters.postgres.policy.usage import Usage
from reservation_core.adapters.postgres.sealing import PLAIN, Sealing
from reservation_core.adapters.postgres.search.search import Search
from reservation_core.adapters.postgres.sessions.app_passes import AppPasses
from reservation_core.adapters.postgres.sessions.connections import Connections
from reservation_core.adapters.postgres.sessions.server_keys import ServerKeys
from reservation_core.adapters.postgres.sessions.shares import Shares
from reservation_core.adapters.postgres.sessions.ssh_keys import SshKeys
from reservation_core.domain.network.replica_lag import ServerProgress
from reservation_core.ports.wakeups import Channel

_TRANSACTION = "READ COMMITTED"
_EACH_BY_ITSELF = "AUTOCOMMIT"
# For a statement that no BEGIN goes before, which would have found a silent server: such statements are short.
_ALONE_S = 15.0


class UnitOfWork:
    """One transaction and everything that can be done in it."""

    def __init__(
        self, connection: AsyncConnection, client: PGMQueue, clock: SharedClock | None = None, sealing: Sealing = PLAIN
    ) -> None:
        self._connection = connection
        self._client = client
        self._clock = clock
        self._sealing = sealing
        self.wakes: set[Channel] = set()

    @cached_property
    def queue(self) -> Queue:
        return Queue(self._client, self._connection)

    @cached_property
    def reservations(self) -> Reservations:
        return Reservations(self._connection, self.queue, self._clock, self._sealing)

    @cached_property
    def arrays(self) -> Arrays:
        return Arrays(self._connection)

    @cached_property
    def leases(self) -> Leases:
        return Leases(self._connection)

    @cached_property
    def dependencies(self) -> Dependencies:
        return Dependencies(self._connection)

    @cached_property
    def planning(self) -> Planning:
        return Planning(self._connection, self._clock)

    @cached_property
    def events(self) -> Events:
        return Events(self._connection)

    @cached_property
    def audit(self) -> Audit:
        return Audit(self._connection)

    @cached_property
    def audit_chain(self) -> AuditChain:
        return AuditChain(self._connection)

    @cached_property
    def inventory(self) -> Inventory:
        return Inventory(self._connection, self.queue)

    @cached_property
    def gpu_use(self) -> GpuUse:
        return GpuUse(self._connection)

    @cached_property
    def gpu_health(self) -> GpuHealth:
        return GpuHealth(self._connection, self.queue)

    @cached_property
    def search(self) -> Search:
        return Search(self._connection)

    @cached_property
    def connections(self) -> Connections:
        return Connections(self._connection)

    @cached_property
    def app_passes(self) -> AppPasses:
        return AppPasses(self._connection)

    @cached_property
    def unknown_pods(self) -> UnknownPods:
        return UnknownPods(self._connection, self.queue)

    @cached_property
    def identities(self) -> Identities:
        return Identities(self._connection)

    @cached_property
    def budgets(self) -> Budgets:
        return Budgets(self._connection)

    @cached_property
    def idempotency(self) -> Idempotency:
        return Idempotency(self._connection, self._sealing)

    @cached_property
    def learnt_waits(self) -> LearntWaitsRow:
        return LearntWaitsRow(self._connection)

    @cached_property
    def measurements(self) -> Measurements:
        return Measurements(self._connection)

    @cached_property
    def pod_logs(self) -> PodLogs:
        return PodLogs(self._connection)

    @cached_property
    def notices(self) -> Notices:
        return Notices(self._connection, self._sealing)

    @cached_property
    def bookings(self) -> Bookings:
        return Bookings(self._connection, self._sealing)

    @cached_property
    def booking_life(self) -> BookingLife:
        return BookingLife(self._connection, self.queue)

    @cached_property
    def maintenance(self) -> Maintenance:
        return Maintenance(self._connection)

    @cached_property
    def calendar_due(self) -> CalendarDue:
        return CalendarDue(self._connection, self._clock)

    @cached_property
    def calendar_feeds(self) -> CalendarFeeds:
        return CalendarFeeds(self._connection)

    async def now(self) -> datetime:
        """The ledger's time, in UTC: the one that all components share, whatever their clocks say."""
        found = await self._connection.execute(statement("ledger_time"))
        at: datetime = found.scalar_one().astimezone(UTC)
        return at if self._clock is None else self._clock.judged(at)

    async def progress(self) -> ServerProgress:
        """How far the server behind this transaction is, at this moment and not at the transaction's beginning."""
        row = (await self._connection.execute(statement("server_progress"))).one()
        return ServerProgress(row.follows, row.position, row.system, row.timeline, row.at.astimezone(UTC))

    @cached_property
    def policies(self) -> Policies:
        return Policies(self._connection)

    @cached_property
    def projects(self) -> Projects:
        return Projects(self._connection)

    @cached_property
    def usage(self) -> Usage:
        return Usage(self._connection)

    @cached_property
    def entitlements(self) -> Entitlements:
        return Entitlements(self._connection)

    @cached_property
    def admissions(self) -> Admissions:
        return Admissions(self._connection)

    @cached_property
    def pod_endings(self) -> PodEndings:
        return PodEndings(self._connection)

    @cached_property
    def belongings(self) -> Belongings:
        return Belongings(self._connection)

    @cached_property
    def used_proofs(self) -> UsedProofs:
        return UsedProofs(self._connection)

    @cached_property
    def secrets(self) -> UserSecrets:
        return UserSecrets(self._connection, self._sealing)

    @cached_property
    def files(self) -> JobFiles:
        return JobFiles(self._connection)

    @cached_property
    def disks(self) -> Disks:
        return Disks(self._connection)

    @cached_property
    def snapshots(self) -> Snapshots:
        return Snapshots(self._connection)

    @cached_property
    def shares(self) -> Shares:
        return Shares(self._connection)

    @cached_property
    def ssh_keys(self) -> SshKeys:
        return SshKeys(self._connection)

    @cached_property
    def server_keys(self) -> ServerKeys:
        return ServerKeys(self._connection, self._sealing)

    @cached_property
    def retention(self) -> Retention:
        return Retention(self._connection)

    def wake(self, channel: Channel) -> None:
        """Wake listeners once this transaction has committed."""
        self.wakes.add(channel)


class HeldPods:
    """Pod locks that are held while the cluster is asked and told, without any transaction; writing needs one."""

    def __init__(self, connection: AsyncConnection, units: "UnitOfWorkFactory", ids: frozenset[str]) -> None:
        self._connection = connection
        self._units = units
        self._ids = ids

    @property
    def ids(self) -> frozenset[str]:
        """The reservations whose lock was free."""
        return self._ids

    @asynccontextmanager
    async def work(self, *, one_statement: bool = False) -> AsyncIterator[UnitOfWork]:
        """A unit of work like the factory's, on the connection that holds the locks: only one at a time.

        A caller that lost that connection, and the locks with it, can't write by it any more.
        """
        check_still_held(self._connection)
        with map_to_unavailable() as reached:
            reached.connected = True
            await self._connection.execution_options(isolation_level=_EACH_BY_ITSELF if one_statement else _TRANSACTION)
            async with self._connection.begin():
                uow = self._units.on(self._connection)
                yield uow
        self._units.wake(uow)


class UnitOfWorkFactory:
    """Opens units of work: `async with uow_factory() as uow:`.

    Wake-ups go out after commit. Where the database's time is not what `clock` has counted, `clock` counts; without
    one, the database's time does.
    """

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
        """A transaction; with `one_statement` each statement is one of its own, which saves two round trips.

        That is only right for work whose every write is in a single statement.
        """
        opened = (self._each_by_itself if one_statement else self._engine).connect()
        with map_to_unavailable() as reached:
            async with AsyncExitStack() as closing:
                async with asyncio.timeout(self._connection_s):
                    connection = await closing.enter_async_context(opened)
                reached.connected = True
                if not one_statement:
                    await closing.enter_async_context(connection.begin())
                uow = self.on(connection)
                yield uow
        self.wake(uow)

    def bounded(self, *, connection: timedelta, statement: timedelta) -> "UnitOfWorkFactory":
        """The same with bounds of its own: on the wait for a connection, and on each statement.

        Beyond these the unit of work fails with DatabaseUnavailableError.
        """
        engine = self._engine.execution_options(**{STATEMENT_OPTION: statement.total_seconds()})
        return UnitOfWorkFactory(
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
    ) -> AsyncIterator[HeldPods]:
        """Keep everybody else from creating and finalising these reservations' pods while the block runs.

        Those whose lock somebody holds are left out, but one that is asked for alone is waited for with `patience`.
        Takes a connection from the pool for as long.
        """
        async with AsyncExitStack() as closing:
            with map_to_unavailable() as reached:
                connection = await closing.enter_async_context(self._holding.connect())
                reached.connected = True
                ids = await closing.enter_async_context(held(connection, reservation_ids, patience))
            yield HeldPods(connection, self, ids)

    def on(self, connection: AsyncConnection) -> UnitOfWork:
        """The repositories on a connection."""
        return UnitOfWork(connection, self._client, self._clock, self._sealing)

    def wake(self, uow: UnitOfWork) -> None:
        """Tell listeners what was committed."""
        for channel in uow.wakes:
            self._wakeups.wake(channel)

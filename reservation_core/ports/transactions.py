"""One transaction, and everything that can be done in it."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

from reservation_core.domain.network.replica_lag import ServerProgress
from reservation_core.ports.bookings.booking_life import BookingLife
from reservation_core.ports.bookings.bookings import Bookings, CalendarFeeds
from reservation_core.ports.bookings.calendar_due import CalendarDue
from reservation_core.ports.bookings.maintenance import Maintenance
from reservation_core.ports.history.audit import Audit
from reservation_core.ports.history.audit_chain import AuditChain
from reservation_core.ports.history.events import Events
from reservation_core.ports.history.idempotency import Idempotency
from reservation_core.ports.history.retention import Retention
from reservation_core.ports.jobs.pod_logs import PodLogs
from reservation_core.ports.jobs.reservations import Reservations
from reservation_core.ports.jobs.unknown_pods import UnknownPods
from reservation_core.ports.nodes.inventory import Inventory
from reservation_core.ports.people.belongings import Belongings
from reservation_core.ports.people.budgets import Budgets
from reservation_core.ports.people.identities import Identities
from reservation_core.ports.people.notices import Notices
from reservation_core.ports.people.proofs import UsedProofs
from reservation_core.ports.planning.measurements import Measurements
from reservation_core.ports.planning.planning import Planning
from reservation_core.ports.pods.pod_endings import PodEndings
from reservation_core.ports.pods.pod_reports import Admissions
from reservation_core.ports.policy.entitlements import Entitlements
from reservation_core.ports.policy.policies import Policies, Projects
from reservation_core.ports.policy.usage import Usage
from reservation_core.ports.queues import Queue
from reservation_core.ports.wakeups import Channel

T = TypeVar("T")


class DatabaseUnavailableError(Exception):
    """The database can't do this now; nothing of the transaction is known to have happened, and a later try may do.

    It could not be reached or went away, unless the error is of one of the classes below.
    """


class StatementRefusedError(DatabaseUnavailableError):
    """The database was reached and refused: it is read-only or full, a statement was cancelled or timed out, say."""


class TransactionLostError(DatabaseUnavailableError):
    """The database ended this transaction so that others can go on; nothing of it happened, the next try will do."""


class UnitOfWork(Protocol):
    """One transaction and everything that can be done in it."""

    @property
    def reservations(self) -> Reservations: ...
    @property
    def planning(self) -> Planning: ...
    @property
    def events(self) -> Events: ...
    @property
    def audit(self) -> Audit: ...
    @property
    def audit_chain(self) -> AuditChain: ...
    @property
    def inventory(self) -> Inventory: ...
    @property
    def unknown_pods(self) -> UnknownPods: ...
    @property
    def identities(self) -> Identities: ...
    @property
    def budgets(self) -> Budgets: ...
    @property
    def idempotency(self) -> Idempotency: ...
    @property
    def measurements(self) -> Measurements: ...
    @property
    def pod_logs(self) -> PodLogs: ...
    @property
    def notices(self) -> Notices: ...
    @property
    def bookings(self) -> Bookings: ...
    @property
    def booking_life(self) -> BookingLife: ...
    @property
    def maintenance(self) -> Maintenance: ...
    @property
    def calendar_due(self) -> CalendarDue: ...
    @property
    def calendar_feeds(self) -> CalendarFeeds: ...
    @property
    def policies(self) -> Policies: ...
    @property
    def projects(self) -> Projects: ...
    @property
    def usage(self) -> Usage: ...
    @property
    def entitlements(self) -> Entitlements: ...
    @property
    def admissions(self) -> Admissions: ...
    @property
    def pod_endings(self) -> PodEndings: ...
    @property
    def belongings(self) -> Belongings: ...
    @property
    def used_proofs(self) -> UsedProofs: ...
    @property
    def retention(self) -> Retention: ...
    @property
    def queue(self) -> Queue: ...

    async def now(self) -> datetime:
        """What time it is by the database's clock: the one that all components share, whatever theirs say."""
        ...

    async def progress(self) -> ServerProgress:
        """How far the server behind this transaction is, at this moment and not at the transaction's beginning."""
        ...

    def wake(self, channel: Channel) -> None:
        """Wake listeners once this transaction has committed."""
        ...


class HeldPods(Protocol):
    """Pod locks that are held while the cluster is asked and told, without any transaction; writing needs one."""

    @property
    def ids(self) -> frozenset[str]:
        """The reservations whose lock was free."""
        ...

    def work(self, *, one_statement: bool = False) -> AbstractAsyncContextManager[UnitOfWork]:
        """A unit of work like the factory's, on the connection that holds the locks: only one at a time.

        Whoever lost that connection, and the locks with it, can't write by it any more.
        """
        ...


class UnitOfWorkFactory(Protocol):
    """Opens units of work: `async with uow_factory() as uow:`."""

    def __call__(self, *, one_statement: bool = False) -> AbstractAsyncContextManager[UnitOfWork]:
        """A transaction; with `one_statement` each statement is one of its own, which saves two round trips.

        That is only right for work whose every write is in a single statement.
        """
        ...

    def hold_pods(
        self, reservation_ids: Sequence[str], *, patience: timedelta = timedelta(0)
    ) -> AbstractAsyncContextManager[HeldPods]:
        """Keep everybody else from creating and finalising these reservations' pods while the block runs.

        Those whose lock somebody holds are left out, but one that is asked for alone is waited for with `patience`.
        """
        ...

    def bounded(self, *, connection: timedelta, statement: timedelta) -> "UnitOfWorkFactory":
        """The same with bounds of its own: on the wait for a connection, and on each statement.

        Beyond these the unit of work fails with DatabaseUnavailableError.
        """
        ...


class Reads(Protocol):
    """Does work that only reads, wherever that is as good as at the primary."""

    async def __call__(self, work: Callable[[UnitOfWork], Awaitable[T]]) -> T:
        """Do it in a transaction that sees all that was committed before this call, and answer what it answers.

        The work must write nothing and keep nothing of the transaction; it may be begun several times, and only the
        last of these ends. Raises what the work raises, and DatabaseUnavailableError.
        """
        ...

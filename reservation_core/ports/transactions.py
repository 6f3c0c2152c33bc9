"""One transaction, and everything that can be done in it."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from reservation_core.ports.events import Events
from reservation_core.ports.idempotency import Idempotency
from reservation_core.ports.identities import Identities
from reservation_core.ports.inventory import Inventory
from reservation_core.ports.measurements import Measurements
from reservation_core.ports.planning import Planning
from reservation_core.ports.pod_logs import PodLogs
from reservation_core.ports.queues import Queue
from reservation_core.ports.reservations import Reservations
from reservation_core.ports.unknown_pods import UnknownPods
from reservation_core.ports.wakeups import Channel


class DatabaseUnavailableError(Exception):
    """The database could not be reached or went away; nothing of the transaction is known to have happened."""


class UnitOfWork(Protocol):
    """One transaction and everything that can be done in it."""

    @property
    def reservations(self) -> Reservations: ...
    @property
    def planning(self) -> Planning: ...
    @property
    def events(self) -> Events: ...
    @property
    def inventory(self) -> Inventory: ...
    @property
    def unknown_pods(self) -> UnknownPods: ...
    @property
    def identities(self) -> Identities: ...
    @property
    def idempotency(self) -> Idempotency: ...
    @property
    def measurements(self) -> Measurements: ...
    @property
    def pod_logs(self) -> PodLogs: ...
    @property
    def queue(self) -> Queue: ...

    async def hold_pod_lock(self, reservation_id: str) -> None:
        """Wait until nobody else creates or finalises this reservation's pods; held until the transaction ends."""
        ...

    async def try_pod_locks(self, reservation_ids: Sequence[str]) -> set[str]:
        """Take those of these locks that are free now, without waiting; returns whose were taken."""
        ...

    def wake(self, channel: Channel) -> None:
        """Wake listeners once this transaction has committed."""
        ...


class UnitOfWorkFactory(Protocol):
    """Opens units of work: `async with uow_factory() as uow:`."""

    def __call__(self, *, one_statement: bool = False) -> AbstractAsyncContextManager[UnitOfWork]:
        """A transaction; with `one_statement` each statement is one of its own, which saves two round trips.

        That is only right for work whose every write is in a single statement.
        """
        ...

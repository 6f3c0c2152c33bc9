"""Which adapters a process works with."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from reservation_core.ports import Clock, Cluster, IdSource, UnitOfWorkFactory, Wakeups


@dataclass(frozen=True, slots=True)
class Runtime:
    """The adapters behind the ports, ready for use."""

    uow: UnitOfWorkFactory
    wakeups: Wakeups
    clock: Clock
    ids: IdSource
    cluster: Cluster

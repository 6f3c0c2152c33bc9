"""The world that the tests of use cases begin with."""

from collections.abc import AsyncIterator

import pytest

from reservation_core.adapters.postgres.connection.engine import open_engine
from reservation_core.adapters.postgres.connection.queues import open_client
from reservation_core.adapters.postgres.connection.wakeups import PostgresWakeups
from reservation_core.adapters.postgres.sealing import Sealing
from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.domain.statuses import Role
from reservation_core.ports.people.identities import Principal
from reservation_core.usecases.nodes.update_inventory import update_inventory
from reservation_core.usecases.pods.end_pods import PodEndRules
from tests.clocks import START, SettableClock
from tests.clusters.scripted_cluster import ScriptedCluster
from tests.database.database_clock import DatabaseClock
from tests.integration.reservation_core.usecases.booking_world import BookingWorld
from tests.integration.reservation_core.usecases.pods.pod_lab import Lab
from tests.integration.reservation_core.usecases.world import World


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    """Two nodes `a` and `b` of two h100 each, and a user alice."""
    engine = open_engine(database_url, pool=5, application="test")
    clock, cluster = SettableClock(), ScriptedCluster()
    try:
        wakeups, sealing = PostgresWakeups(database_url, "test"), Sealing((), [b"k" * 32])
        uow = UnitOfWorkFactory(engine, await open_client(engine), wakeups, sealing=sealing)
        async with uow() as work:
            user = await work.identities.create_user("alice", Role.USER, clock.now())
        await update_inventory(uow, cluster, clock)
        yield World(uow, clock, cluster, Principal(user.id, user.name, user.role, "tok-x", None))
    finally:
        await engine.dispose()


@pytest.fixture
async def bookings(database_url: str) -> AsyncIterator[BookingWorld]:
    """The same on a database whose clock is set, too: it is 12:00."""
    time = await DatabaseClock.install(database_url, START)
    engine = open_engine(database_url, pool=10, application="test")
    clock, cluster = SettableClock(), ScriptedCluster()
    try:
        uow = UnitOfWorkFactory(engine, await open_client(engine), PostgresWakeups(database_url, "test"))
        async with uow() as work:
            user = await work.identities.create_user("alice", Role.USER, clock.now())
        await update_inventory(uow, cluster, clock)
        world = World(uow, clock, cluster, Principal(user.id, user.name, user.role, "tok-x", None))
        yield BookingWorld(world, time, engine)
    finally:
        await engine.dispose()


@pytest.fixture
def lab(bookings: BookingWorld) -> Lab:
    """Its pods of people, and who ends them."""
    return Lab(bookings, PodEndRules())

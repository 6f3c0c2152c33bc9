"""Disks and snapshots that are deleted during a copy: the leader removes them afterwards, and nothing is left."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from unittest.mock import patch

import pytest

from reservation_core.ports.disks.disks import DiskCopy
from reservation_core.usecases.disks.copy_disks import Copying
from reservation_core.usecases.disks.settle_disks import settle_disks
from tests.integration.reservation_core.usecases.disks.test_copy_disks import copied, dropped, ready, taken
from tests.integration.reservation_core.usecases.disks.test_settle_disks import RULES, Store, deleted
from tests.integration.reservation_core.usecases.world import World


@pytest.fixture
def store() -> Store:
    return Store()


@asynccontextmanager
async def copy_under_way(world: World, store: Store, copying: Copying) -> AsyncIterator[None]:
    """The store makes a copy meanwhile; it is made when this ends."""
    began, go_on, copy = asyncio.Event(), asyncio.Event(), store.copy

    async def slow(asked: DiskCopy) -> bool:
        began.set()
        await go_on.wait()
        return await copy(asked)

    with patch.object(store, "copy", slow):
        made = asyncio.create_task(copied(world, store, copying))
        await began.wait()
        yield
        go_on.set()
        await made


async def test_a_disk_that_goes_at_once_waits_for_its_snapshot(world: World, store: Store) -> None:
    await ready(world, store)
    await taken(world)
    copying, rules = Copying(), replace(RULES, kept=timedelta(0))
    async with copy_under_way(world, store, copying):
        await dropped(world)
        await deleted(world)
        for _ in range(2):
            assert await settle_disks(world.uow, store, world.clock, rules, copying.targets) == 0
    world.clock.go_on(timedelta(minutes=2))
    while await settle_disks(world.uow, store, world.clock, rules, copying.targets):
        pass
    assert store.sizes == {}


async def test_a_copy_that_begins_while_disks_are_settled_is_seen(world: World, store: Store) -> None:
    disk = await ready(world, store)
    await taken(world)
    copying = Copying()
    targets = copying.targets  # as the leader's look got them before
    async with copy_under_way(world, store, copying):
        await dropped(world)
        assert await settle_disks(world.uow, store, world.clock, RULES, targets) == 0
    world.clock.go_on(timedelta(minutes=2))
    while await settle_disks(world.uow, store, world.clock, RULES, targets):
        pass
    assert store.sizes.keys() == {disk.id}


async def test_a_copy_that_is_refused_again_and_again_rests_longer(world: World, store: Store) -> None:
    """On the local cluster, a try walks over all files, and another copy waits meanwhile."""
    await ready(world, store)
    await taken(world)
    copying, store.full = Copying(), True
    for minutes in (1, 2, 4, 8, 16, 32, 60, 60):
        assert await copied(world, store, copying)
        world.clock.go_on(timedelta(minutes=minutes) - timedelta(seconds=1))
        assert not await copied(world, store, copying)
        world.clock.go_on(timedelta(seconds=2))
    store.full = False
    assert await copied(world, store, copying)
    await taken(world, "second")
    store.full = True
    assert await copied(world, store, copying)
    world.clock.go_on(timedelta(minutes=1, seconds=1))
    assert await copied(world, store, copying)

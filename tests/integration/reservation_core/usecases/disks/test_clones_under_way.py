"""Clones that are not made yet: used, deleted and refused, and their sources given to somebody else."""

from dataclasses import replace
from datetime import timedelta
from unittest.mock import patch

import pytest

from reservation_core.domain.disks.disk_life import DiskState
from reservation_core.domain.disks.disk_uses import DiskUse
from reservation_core.domain.errors import DiskInUseError, LimitExceededError
from reservation_core.domain.model import Role
from reservation_core.ports.disks.disks import DiskCopy
from reservation_core.usecases.disks.disks import DiskChanges, change_disk
from tests.integration.reservation_core.usecases.disks.test_copy_disks import (
    CRASH_CONSISTENT,
    cloned,
    copied,
    ready,
)
from tests.integration.reservation_core.usecases.disks.test_settle_disks import (
    BOUNDS,
    GIB,
    Store,
    deleted,
    ended,
    settled,
    shown,
    with_disk,
)
from tests.integration.reservation_core.usecases.world import World


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.mark.parametrize("is_noted", [False, True], ids=["just-ended", "noted"])
async def test_a_clone_that_a_job_has_had_is_not_given_up(world: World, store: Store, is_noted: bool) -> None:
    """Its volume came with the first pod, and the leader has not seen that yet: what the job wrote is on it."""
    await ready(world, store)
    new = await cloned(world, rules=CRASH_CONSISTENT)
    store.pending = True
    await copied(world, store)
    job = await with_disk(world, DiskUse("new", "/new"))
    store.sizes[new.id], store.contents[new.id] = GIB, "a day of work"
    await ended(world, job)
    if is_noted:
        async with world.uow() as uow:
            await uow.disks.end_uses(world.clock.now(), 10)
    with pytest.raises(DiskInUseError, match=r"A job has had the disk new\. Wait until `gpu-dev disk show new` says"):
        await deleted(world, "new")
    assert (await settled(world, store), store.contents[new.id]) == (0, "a day of work")
    store.pending = False
    world.clock.go_on(timedelta(minutes=2))
    await copied(world, store)
    assert (await deleted(world, "new")).state is DiskState.DELETED
    assert (await settled(world, store), new.id in store.contents) == (0, True)


async def test_a_clone_that_no_job_has_had_goes_at_once(world: World, store: Store) -> None:
    disk = await ready(world, store)
    await cloned(world, rules=CRASH_CONSISTENT)
    store.pending = True
    await copied(world, store)
    assert (await deleted(world, "new")).is_given_up
    assert (await settled(world, store), store.sizes.keys()) == (1, {disk.id})


@pytest.mark.parametrize(
    ("given", "words"),
    [("data", "disk data is being copied into the disk new"), ("new", "disk new is a copy that is not made yet")],
)
async def test_neither_end_of_a_clone_is_handed_over(world: World, store: Store, given: str, words: str) -> None:
    """The clone would have what the source's new owner writes."""
    disk = await ready(world, store, content="of alice")
    new = await cloned(world, rules=CRASH_CONSISTENT)
    store.full = True
    await copied(world, store)  # refused, and tried again each minute
    async with world.uow() as uow:
        await uow.identities.create_user("bob", Role.USER, world.clock.now())
    admin = replace(world.who, role=Role.ADMIN)

    async def give() -> None:
        async with world.uow() as uow:
            await change_disk(uow, admin, given, DiskChanges(owner="bob"), BOUNDS, world.clock.now())

    with pytest.raises(DiskInUseError, match=words):
        await give()
    store.full = False
    world.clock.go_on(timedelta(minutes=2))
    await copied(world, store)
    assert store.contents[new.id] == "of alice"
    await give()
    assert disk.id in store.contents


async def test_a_job_may_have_a_clone_that_was_refused_once_and_has_begun(world: World, store: Store) -> None:
    """Its volume comes with its first pod: as long as no job may have it, it is not made."""
    await ready(world, store)
    await cloned(world, rules=CRASH_CONSISTENT)
    store.full = True
    await copied(world, store)
    with pytest.raises(LimitExceededError, match="no room"):
        await with_disk(world, DiskUse("new", "/new"))
    store.full, store.pending = False, True
    world.clock.go_on(timedelta(minutes=2))
    await copied(world, store)
    assert (await shown(world, "new")).problem is None
    await with_disk(world, DiskUse("new", "/new"))


async def test_a_clone_that_is_given_up_while_it_is_begun_stays_given_up(world: World, store: Store) -> None:
    disk = await ready(world, store)
    await cloned(world, rules=CRASH_CONSISTENT)
    store.pending, copy = True, store.copy

    async def meanwhile(asked: DiskCopy) -> bool:
        await deleted(world, "new")
        return await copy(asked)

    with patch.object(store, "copy", meanwhile):
        await copied(world, store)
    world.clock.go_on(timedelta(minutes=2))
    assert (await settled(world, store), store.sizes.keys()) == (1, {disk.id})

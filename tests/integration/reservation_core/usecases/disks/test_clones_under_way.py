"""Clones that are not made yet: used, deleted and refused, and their sources given to somebody else."""

from dataclasses import replace
from datetime import timedelta
from unittest.mock import AsyncMock, patch

import pytest

from reservation_core.domain.disks.disk_life import DiskState
from reservation_core.domain.disks.disk_uses import DiskUse
from reservation_core.domain.errors import DiskInUseError, LimitExceededError
from reservation_core.domain.statuses import JobStatus, ReasonCode, Role
from reservation_core.ports.disks.disks import DiskCopy, DiskDelayedError, DiskRecord, DiskRefusedError
from reservation_core.usecases.disks.copy_disks import Copying
from reservation_core.usecases.disks.disks import DiskChanges, change_disk, restore_disk
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


async def used(world: World, store: Store, *, is_noted: bool = False) -> DiskRecord:
    """A clone that a job has had, and that was not there when the leader looked last."""
    new = await cloned(world, rules=CRASH_CONSISTENT)
    store.pending = True
    await copied(world, store)
    await ended(world, await with_disk(world, DiskUse("new", "/new")))
    if is_noted:
        async with world.uow() as uow:
            await uow.disks.end_uses(world.clock.now(), 10)
    return new


@pytest.mark.parametrize("is_noted", [False, True], ids=["just-ended", "noted"])
async def test_a_clone_that_a_job_has_had_is_not_given_up(world: World, store: Store, is_noted: bool) -> None:
    """Its volume came with the first pod, and the leader has not seen that yet: what the job wrote is on it."""
    await ready(world, store)
    new = await used(world, store, is_noted=is_noted)
    store.sizes[new.id], store.contents[new.id], store.pending = GIB, "a day of work", False
    assert not (await deleted(world, "new")).is_given_up
    assert await settled(world, store) == 0
    await copied(world, store)
    assert (await settled(world, store), store.contents[new.id]) == (0, "a day of work")
    async with world.uow() as uow:
        restored = await restore_disk(uow, world.who, "new", BOUNDS, world.clock.now())
    assert (restored.id, restored.state) == (new.id, DiskState.READY)


async def test_a_clone_that_a_job_waited_for_in_vain_goes_once_it_is_deleted(world: World, store: Store) -> None:
    disk = await ready(world, store)
    new = await used(world, store)
    world.clock.go_on(timedelta(minutes=2))
    store.refusal = "The cluster could not make its volume yet: no such class."
    await copied(world, store)
    assert (await shown(world, "new")).problem == store.refusal
    await deleted(world, "new")
    assert (await copied(world, store), await settled(world, store), store.sizes.keys()) == (True, 1, {disk.id})
    assert new.id not in store.contents
    await deleted(world)  # nothing is copied of it any more


async def test_a_clone_that_was_restored_before_it_was_looked_at_is_made(world: World, store: Store) -> None:
    await ready(world, store)
    new = await used(world, store)
    await deleted(world, "new")
    async with world.uow() as uow:
        await restore_disk(uow, world.who, "new", BOUNDS, world.clock.now())
    store.pending = False
    await copied(world, store)
    assert ((await shown(world, "new")).state, store.contents[new.id]) == (DiskState.READY, "42")


async def test_a_clone_that_is_deleted_while_it_is_looked_at_is_looked_at_again(world: World, store: Store) -> None:
    """The look began before its last job ended: the volume may have come since."""
    await ready(world, store)
    new = await used(world, store)
    world.clock.go_on(timedelta(minutes=2))

    async def meanwhile(asked: DiskCopy) -> int | None:
        await deleted(world, "new")
        store.sizes[new.id], store.contents[new.id] = GIB, "a day of work"
        raise DiskRefusedError("The cluster could not make its volume yet.")

    with patch.object(store, "copy", meanwhile):
        await copied(world, store)
    store.pending = False
    assert (await settled(world, store), await copied(world, store)) == (0, True)
    assert (await settled(world, store), store.contents[new.id]) == (0, "a day of work")


async def test_a_clone_that_became_larger_meanwhile_is_made_with_the_size_it_has(world: World, store: Store) -> None:
    """Its content counts, also where the cluster never makes it larger: then the size can be taken back."""
    await ready(world, store)
    await cloned(world, rules=CRASH_CONSISTENT)

    async def resize(size: int) -> None:
        async with world.uow() as uow:
            await change_disk(uow, world.who, "new", DiskChanges(size_bytes=size), BOUNDS, world.clock.now())

    await resize(2 * GIB)

    async def smaller(asked: DiskCopy) -> int | None:
        store.sizes[asked.target_id] = GIB
        return GIB

    with patch.object(store, "copy", smaller):
        await copied(world, store)
    assert ((await shown(world, "new")).state, (await shown(world, "new")).made_bytes) == (DiskState.RESIZING, GIB)
    store.full = True
    await settled(world, store)
    assert (await shown(world, "new")).problem == "no room"
    await resize(GIB)
    assert (await shown(world, "new")).state is DiskState.READY


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

    async def meanwhile(asked: DiskCopy) -> int | None:
        await deleted(world, "new")
        return await copy(asked)

    with patch.object(store, "copy", meanwhile):
        await copied(world, store)
    world.clock.go_on(timedelta(minutes=2))
    assert (await settled(world, store), store.sizes.keys()) == (1, {disk.id})


async def test_a_job_that_waits_for_a_refused_clone_says_so(world: World, store: Store) -> None:
    await ready(world, store)
    await cloned(world, rules=CRASH_CONSISTENT)
    store.pending = True
    await copied(world, store)
    job = await with_disk(world, DiskUse("new", "/new"))
    await world.plan()
    await world.operate()
    world.clock.go_on(timedelta(minutes=2))
    store.refusal = "The cluster could not make its volume yet: no such class."
    await copied(world, store)
    row = await world.row(job)
    assert (row.status, row.reason.code) == (JobStatus.STARTING, ReasonCode.UNSCHEDULABLE)
    assert row.reason.detail == f"It waits for the disk new. {store.refusal}"


async def test_a_clone_that_comes_late_is_seen_soon_however_often_the_cluster_failed_before(
    world: World, store: Store
) -> None:
    """A driver that takes longer than it is waited for says so again and again, and has it in the end."""
    await ready(world, store)
    await cloned(world, rules=CRASH_CONSISTENT)
    copying = Copying()
    failing = AsyncMock(side_effect=DiskDelayedError("The cluster could not make its volume yet: too slow."))
    with patch.object(store, "copy", failing):
        for _ in range(8):
            assert await copied(world, store, copying)
            world.clock.go_on(timedelta(minutes=1, seconds=1))
    assert (await shown(world, "new")).problem == "The cluster could not make its volume yet: too slow."
    assert await copied(world, store, copying)
    assert (await shown(world, "new")).state is DiskState.READY

"""Snapshots and clones through kills at any moment: each is whole or not there, and none is left that no row knows."""

import asyncio
import random
from contextlib import suppress
from datetime import timedelta

import pytest
from sqlalchemy.exc import IntegrityError

from reservation_core.adapters.identity.ids import RandomIds
from reservation_core.domain.disks.disk_life import DiskBounds, DiskState
from reservation_core.domain.disks.disk_uses import MOST_SNAPSHOTS, DiskUse
from reservation_core.domain.errors import (
    DiskInUseError,
    DomainError,
    LimitExceededError,
    NameTakenError,
    NotFoundError,
)
from reservation_core.ports.disks.disks import DiskRecord, SnapshotRecord
from reservation_core.usecases.disks.copy_disks import Copying
from reservation_core.usecases.disks.disks import DiskChanges, change_disk, restore_disk
from reservation_core.usecases.disks.settle_disks import measure_disks, settle_disks
from reservation_core.usecases.disks.snapshots import CopyRules, clone_disk, delete_snapshot, take_snapshot
from tests.database.sql import sql
from tests.integration.reservation_core.usecases.disks.test_settle_disks import (
    BOUNDS,
    GIB,
    KEPT,
    RULES,
    KilledError,
    Store,
    created,
    deleted,
    ended,
    settled,
    shown,
    with_disk,
)
from tests.integration.reservation_core.usecases.world import World
from tests.waiting import eventually

STILL = CopyRules(BOUNDS, is_still=True)
CRASH_CONSISTENT = CopyRules(BOUNDS, is_still=False)
_WAITS = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@pytest.fixture
def store() -> Store:
    return Store()


async def taken(
    world: World, name: str | None = "first", disk: str = "data", rules: CopyRules = STILL
) -> SnapshotRecord:
    async with world.uow() as uow:
        return await take_snapshot(uow, world.who, disk, name, rules, RandomIds(), world.clock.now())


async def cloned(
    world: World, name: str = "new", snapshot: str | None = None, size: int | None = None, rules: CopyRules = STILL,
    disk: str = "data",
) -> DiskRecord:  # fmt: skip
    async with world.uow() as uow:
        return await clone_disk(uow, world.who, name, (disk, snapshot), size, rules, RandomIds(), world.clock.now())


async def dropped(world: World, name: str = "first", disk: str = "data") -> None:
    async with world.uow() as uow:
        await delete_snapshot(uow, world.who, disk, name, world.clock.now())


async def copied(world: World, store: Store, copying: Copying | None = None) -> bool:
    return await (copying or Copying()).copy_next(world.uow, store, world.clock, RULES)


async def ready(world: World, store: Store, name: str = "data", content: str = "42") -> DiskRecord:
    disk = await created(world, name)
    await settled(world, store)
    store.contents[disk.id] = content
    return await shown(world, name)


async def test_a_snapshot_stays_as_the_disk_was_and_clones_begin_with_it(world: World, store: Store) -> None:
    disk = await ready(world, store)
    snapshot = await taken(world)
    assert (await copied(world, store), await copied(world, store)) == (True, False)
    store.contents[disk.id] = "43"
    then, now = await cloned(world, "then", "first"), await cloned(world, "now", size=2 * GIB)
    assert await settled(world, store) == 0  # no empty disk is made of a clone
    assert (await copied(world, store), await copied(world, store)) == (True, True)
    assert (store.contents[then.id], store.contents[now.id]) == ("42", "43")
    assert [(await shown(world, name)).state for name in ("then", "now")] == [DiskState.READY] * 2
    assert (await shown(world, "now")).made_bytes == 2 * GIB
    [kept] = (await shown(world)).snapshots
    assert (kept.id, kept.is_made, kept.size_bytes) == (snapshot.id, True, GIB)
    await dropped(world)
    assert ((await shown(world)).snapshots, await settled(world, store)) == ((), 1)
    assert store.sizes.keys() == {disk.id, then.id, now.id}


async def test_nothing_changes_what_is_copied(world: World, store: Store) -> None:
    disk = await ready(world, store)
    await taken(world)
    await copied(world, store)
    new = await cloned(world)
    with pytest.raises(DiskInUseError, match="being copied into the disk new, and no job writes"):
        await with_disk(world, DiskUse("data", "/data"))
    with pytest.raises(DiskInUseError, match="The disk new is not copied yet"):
        await with_disk(world, DiskUse("new", "/data", read_only=True))
    with pytest.raises(DiskInUseError, match="being copied into the disk new"):
        await deleted(world)
    reader = await with_disk(world, DiskUse("data", "/data", read_only=True))
    then = await cloned(world, "then", "first")
    with pytest.raises(DiskInUseError, match="The snapshot first is being copied into the disk then"):
        await dropped(world)
    for statement, constraint in (
        ("UPDATE disk_uses SET read_only = false", "is being copied"),
        ("UPDATE disks SET deleted_at = now() WHERE id = :disk", "disk_uses_of_live|disk_copies_of_live"),
        ("DELETE FROM disks WHERE id = :disk", "violates foreign key"),
        ("UPDATE disk_snapshots SET removing = true", "disk_copies_of_live_snapshot"),
        ("DELETE FROM disk_snapshots", "disk_copies_of_live_snapshot"),
        ("UPDATE disks SET made_bytes = size_bytes WHERE id <> :disk", "is not copied yet"),
        ("UPDATE disk_copies SET disk_id = clone_id, snapshot_id = NULL", "disk_copies_of_another"),
    ):
        with pytest.raises(IntegrityError, match=constraint):
            async with world.uow() as uow:
                await sql(uow, statement, **({"disk": disk.id} if ":disk" in statement else {}))
    await ended(world, reader)
    while await copied(world, store):
        pass
    assert store.contents[new.id] == store.contents[then.id] == "42"
    await with_disk(world, DiskUse("data", "/data"), DiskUse("new", "/new"))


async def test_a_disk_that_a_job_writes_to_is_copied_where_the_cluster_does_that_at_once(
    world: World, store: Store
) -> None:
    await ready(world, store)
    job = await with_disk(world, DiskUse("data", "/data"))
    for asked in (taken(world), cloned(world)):
        with pytest.raises(DiskInUseError, match=f"The job {job} can write to the disk data"):
            await asked
    async with world.uow() as uow:
        with pytest.raises(IntegrityError, match="A job writes to the disk"):
            await sql(
                uow,
                "INSERT INTO disk_copies (clone_id, disk_id, is_still) SELECT id, id, true FROM disks",
            )
    await taken(world, rules=CRASH_CONSISTENT)
    await cloned(world, "other", rules=CRASH_CONSISTENT)
    await with_disk(world, DiskUse("other", "/other"))  # its volume may come with its first pod
    await ended(world, job)
    await taken(world, "second")


@pytest.mark.parametrize("first", ["job", "snapshot"])
async def test_a_writer_and_a_copy_that_are_asked_for_at_once_do_not_meet(
    world: World, store: Store, first: str
) -> None:
    """In whatever order both are written, and with SQL of any kind."""
    disk = await ready(world, store)
    new = await created(world, "new")
    job = await world.submitted()
    use = "INSERT INTO disk_uses (disk_id, reservation_id, read_only) VALUES (:disk, :job, false)"
    copy = "INSERT INTO disk_copies (clone_id, disk_id, is_still) VALUES (:new, :disk, true)"
    values: dict[str, dict[str, object]] = {use: {"disk": disk.id, "job": job}, copy: {"new": new.id, "disk": disk.id}}
    one, other = (use, copy) if first == "job" else (copy, use)

    async def write(statement: str) -> None:
        async with world.uow() as uow:
            await sql(uow, statement, **values[statement])

    async def waits() -> bool:
        async with world.uow() as uow:
            return (await sql(uow, _WAITS)).first() is not None

    async with world.uow() as uow:
        await sql(uow, one, **values[one])
        second = asyncio.create_task(write(other))
        await eventually(waits)
    with pytest.raises(IntegrityError, match=r"A job writes to the disk|is being copied"):
        await second


async def test_a_clone_that_is_deleted_before_it_is_copied_goes_at_once(world: World, store: Store) -> None:
    disk = await ready(world, store)
    new = await cloned(world)
    await deleted(world, "new")
    assert not await copied(world, store)
    assert (await settled(world, store), store.sizes.keys()) == (1, {disk.id})
    await with_disk(world, DiskUse("data", "/data"))
    async with world.uow() as uow:
        assert (await sql(uow, "SELECT count(*) FROM disks WHERE id = :id", id=new.id)).scalar_one() == 0


async def test_a_copy_that_is_deleted_while_it_is_made_is_removed_afterwards(world: World, store: Store) -> None:
    disk = await ready(world, store)
    snapshot = await taken(world)
    copying, copy = Copying(), store.copy

    async def meanwhile(asked: object) -> int | None:
        await dropped(world)
        await ended(world, await with_disk(world, DiskUse("data", "/data")))
        assert await settle_disks(world.uow, store, world.clock, RULES, copying.targets) == 0
        return await copy(asked)  # type: ignore[arg-type]

    store.copy = meanwhile  # type: ignore[method-assign,assignment]
    await copied(world, store, copying)
    assert store.sizes.keys() == {disk.id, snapshot.id}
    assert (await settled(world, store), store.sizes.keys()) == (1, {disk.id})


async def test_what_can_not_be_copied_says_why_and_is_tried_again(world: World, store: Store) -> None:
    await ready(world, store)
    await taken(world)
    await cloned(world, size=2 * GIB)
    store.full = True
    assert [await copied(world, store) for _ in range(3)] == [True, True, False]
    [snapshot] = (await shown(world)).snapshots
    assert (snapshot.problem, snapshot.is_made, (await shown(world, "new")).problem) == ("no room", False, "no room")
    async with world.uow() as uow:
        with pytest.raises(LimitExceededError, match="can't be made smaller"):  # nothing fits on less
            await change_disk(uow, world.who, "new", DiskChanges(size_bytes=GIB), BOUNDS, world.clock.now())
    store.full, store.pending = False, True
    world.clock.go_on(timedelta(minutes=2))
    assert [await copied(world, store) for _ in range(3)] == [True, True, False]
    store.pending = False
    world.clock.go_on(timedelta(seconds=6))  # what the cluster has begun is looked at sooner
    assert [await copied(world, store) for _ in range(3)] == [True, True, False]
    [snapshot] = (await shown(world)).snapshots
    assert (snapshot.problem, snapshot.is_made, (await shown(world, "new")).problem) == (None, True, None)


async def test_snapshots_go_and_come_back_with_their_disk(world: World, store: Store) -> None:
    disk = await ready(world, store)
    await taken(world)
    await copied(world, store)
    await deleted(world)
    with pytest.raises(NotFoundError):
        await cloned(world, "then", "first")
    async with world.uow() as uow:
        restored = await restore_disk(uow, world.who, "data", DiskBounds(0, 0), world.clock.now())
    assert [snapshot.name for snapshot in restored.snapshots] == ["first"]
    await deleted(world)
    world.clock.go_on(KEPT)
    store.kill = iter(["", "before"])
    with pytest.raises(KilledError):  # between the snapshot and the disk
        await settled(world, store)
    assert (await settled(world, store), store.sizes, disk.id in store.sizes) == (1, {}, False)


async def test_snapshots_count_with_their_disk_and_have_bounds(world: World, store: Store) -> None:
    await ready(world, store)
    bounds = CopyRules(DiskBounds(2 * GIB, 1000 * GIB), is_still=True)
    await taken(world, rules=bounds)
    with pytest.raises(LimitExceededError, match="Your disks would have 3 GiB together, snapshots"):
        await taken(world, "second", rules=bounds)
    with pytest.raises(LimitExceededError, match="All users' disks have 2 GiB together"):
        await cloned(world, rules=CopyRules(DiskBounds(9 * GIB, 2 * GIB), is_still=True))
    async with world.uow() as uow:
        with pytest.raises(LimitExceededError, match="5 GiB together"):
            await change_disk(uow, world.who, "data", DiskChanges(size_bytes=4 * GIB), bounds.bounds, world.clock.now())
    with pytest.raises(NameTakenError, match="has a snapshot first already"):
        await taken(world)
    with pytest.raises(LimitExceededError, match="A clone of this has 1 GiB or more"):
        await cloned(world, size=GIB // 2)
    for number in range(MOST_SNAPSHOTS - 1):
        await taken(world, f"s{number}")
    with pytest.raises(LimitExceededError, match=f"has {MOST_SNAPSHOTS} snapshots"):
        await taken(world, None)


async def test_what_is_not_made_yet_is_not_copied(world: World, store: Store) -> None:
    await created(world)
    for asked in (taken(world), cloned(world)):
        with pytest.raises(LimitExceededError, match="The disk data is not made yet"):
            await asked
    await settled(world, store)
    await taken(world)
    with pytest.raises(LimitExceededError, match="The snapshot first is not taken yet"):
        await cloned(world, "then", "first")
    with pytest.raises(NotFoundError, match="has no snapshot second"):
        await cloned(world, "then", "second")


class History:
    """Random requests and looks of the leader. `expected` has what must be on a disk or in a snapshot, by id."""

    def __init__(self, world: World, store: Store) -> None:
        self.expected: dict[str, str] = {}
        self._world = world
        self._store = store
        self._jobs: list[str] = []
        self._dice = random.Random()
        self._steps = (
            self._create, self._delete, self._restore, self._take, self._clone, self._clone_of_snapshot, self._drop,
            self._write, self._end, self._look, self._look, self._look,
        )  # fmt: skip

    async def go_on(self, seed: int) -> None:
        """Some steps, in which the leader is killed now and then, and then all that is left to do."""
        self._dice = random.Random(seed)
        for _ in range(50):
            self._store.kill = iter([self._dice.choice(["", "", "before", "after"]) for _ in range(3)])
            with suppress(DomainError, AssertionError, KilledError):
                await self._dice.choice(self._steps)(self._dice.choice("abc"), self._dice.choice("abcde"))
        while self._jobs:
            await ended(self._world, self._jobs.pop())
        self._store.kill = iter(())
        await measure_disks(self._world.uow, self._store, self._world.clock, RULES)
        self._world.clock.go_on(timedelta(minutes=2))
        while await settled(self._world, self._store) or await copied(self._world, self._store):
            pass

    async def _create(self, disk: str, _: str) -> None:
        await created(self._world, disk)

    async def _delete(self, _: str, other: str) -> None:
        await deleted(self._world, other)

    async def _restore(self, _: str, other: str) -> None:
        async with self._world.uow() as uow:
            await restore_disk(uow, self._world.who, other, BOUNDS, self._world.clock.now())

    async def _take(self, disk: str, _: str) -> None:
        content = self._store.contents.get((await shown(self._world, disk)).id, "")
        self.expected[(await taken(self._world, self._dice.choice("st"), disk)).id] = content

    async def _clone(self, disk: str, other: str) -> None:
        content = self._store.contents.get((await shown(self._world, disk)).id, "")
        self.expected[(await cloned(self._world, other, disk=disk)).id] = content

    async def _clone_of_snapshot(self, disk: str, other: str) -> None:
        snapshot = self._dice.choice([*(await shown(self._world, disk)).snapshots] or [None])
        if snapshot is not None:
            made = await cloned(self._world, other, snapshot.name, disk=disk)
            self.expected[made.id] = self.expected[snapshot.id]

    async def _drop(self, disk: str, _: str) -> None:
        await dropped(self._world, self._dice.choice("st"), disk)

    async def _write(self, disk: str, _: str) -> None:
        self._jobs.append(await with_disk(self._world, DiskUse(disk, "/x")))
        written = (await shown(self._world, disk)).id
        if written in self._store.sizes:
            self._store.contents[written] = self.expected[written] = str(self._dice.random())

    async def _end(self, _: str, __: str) -> None:
        if self._jobs:
            await ended(self._world, self._jobs.pop(self._dice.randrange(len(self._jobs))))

    async def _look(self, _: str, __: str) -> None:
        self._world.clock.go_on(timedelta(days=self._dice.randint(0, 12)))
        await settled(self._world, self._store)
        await copied(self._world, self._store)


async def test_histories_with_kills_leave_no_orphan_and_no_half(world: World, store: Store) -> None:
    """At the end the store has what the rows say, each copy with what was on its source when it was asked for."""
    history = History(world, store)
    copies = 0
    for seed in range(10):
        await history.go_on(seed)
        async with world.uow() as uow:
            rows = [*await sql(uow, "SELECT id, made_bytes IS NOT NULL AS made FROM disks")]
            rows += [*await sql(uow, "SELECT id, made FROM disk_snapshots WHERE NOT removing")]
            assert store.sizes.keys() <= {row.id for row in rows}, seed
            assert {row.id for row in rows if row.made} <= store.sizes.keys(), seed
            assert (await sql(uow, "SELECT count(*) FROM disk_copies")).scalar_one() == 0, seed
        compared = store.sizes.keys() & history.expected.keys()
        assert {one: store.contents.get(one, "") for one in compared} == {
            one: history.expected[one] for one in compared
        }
        copies += len([one for one in compared if history.expected[one]])
    assert copies > 20

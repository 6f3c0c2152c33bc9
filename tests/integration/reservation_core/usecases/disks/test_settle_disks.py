"""Disks through kills of the leader at any moment: none is lost, and none is left that no row knows."""

import asyncio
import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from unittest.mock import patch

import pytest
from sqlalchemy.exc import IntegrityError

from reservation_core.adapters.identity.ids import RandomIds
from reservation_core.domain.disks.disk_life import DiskBounds, DiskState
from reservation_core.domain.disks.disk_uses import DiskUse
from reservation_core.domain.errors import DiskInUseError, DomainError, LimitExceededError, UserDisabledError
from reservation_core.domain.statuses import JobStatus, Role
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.disks.disks import DiskCopy, DiskRecord, DiskRefusedError
from reservation_core.usecases.disks.disks import DiskChanges, change_disk, create_disk, delete_disk, restore_disk
from reservation_core.usecases.disks.settle_disks import DiskRules, measure_disks, settle_disks
from reservation_core.usecases.disks.submit_with_disks import submit_with_disks
from tests.database.sql import sql
from tests.integration.reservation_core.usecases.world import World
from tests.waiting import eventually

GIB = 2**30
KEPT = timedelta(days=30)
RULES = DiskRules(KEPT)
BOUNDS = DiskBounds(100 * GIB, 1000 * GIB)
NO_ROOM = DiskBounds(0, 0)
_WAITS = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


class KilledError(BaseException):
    """The leader was killed here, and does nothing more."""


class Store:
    """Disks by id with their sizes. `kill` says when the next call is cut off: before or after it is done."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self.contents: dict[str, str] = {}
        self.full = False
        self.refusal = ""
        self.pending = False
        self.broken = ""
        self.kill: Iterator[str] = iter(())

    async def make(self, disk_id: str, size_bytes: int) -> None:
        """Make a disk, or resize it."""
        cut = next(self.kill, "")
        self._end(cut == "before")
        if disk_id == self.broken:
            raise ClusterUnavailableError("the disk does not answer")
        if self.full:
            raise DiskRefusedError("no room")
        self.sizes[disk_id] = size_bytes
        self._end(cut == "after")

    async def remove(self, disk_id: str) -> None:
        """Remove a disk."""
        cut = next(self.kill, "")
        self._end(cut == "before")
        self.sizes.pop(disk_id, None)
        self.contents.pop(disk_id, None)
        self._end(cut == "after")

    async def copy(self, copy: DiskCopy) -> int | None:
        """Copy a disk or a snapshot."""
        cut = next(self.kill, "")
        self._end(cut == "before")
        if self.full:
            raise DiskRefusedError("no room")
        if self.refusal:
            raise DiskRefusedError(self.refusal)
        if self.pending:
            return None
        if copy.deleted_at is not None and copy.target_id in self.contents:
            return self.sizes[copy.target_id]  # it came with a job's pod
        self.sizes[copy.target_id] = copy.size_bytes
        self.contents[copy.target_id] = self.contents.get(copy.source_id, "")
        self._end(cut == "after")
        return copy.size_bytes

    async def remove_snapshot(self, snapshot_id: str) -> None:
        """Remove a snapshot."""
        await self.remove(snapshot_id)

    async def measure(self, disk_id: str, size_bytes: int) -> int | None:
        """All disks are half full."""
        return self.sizes[disk_id] // 2

    async def close(self) -> None:
        """Nothing is open."""

    def _end(self, killed: bool) -> None:
        if killed:
            raise KilledError


@pytest.fixture
def store() -> Store:
    return Store()


async def created(world: World, name: str = "data", size: int = GIB) -> DiskRecord:
    async with world.uow() as uow:
        return await create_disk(uow, world.who, name, size, BOUNDS, RandomIds(), world.clock.now())


async def deleted(world: World, name: str = "data") -> DiskRecord:
    async with world.uow() as uow:
        return await delete_disk(uow, world.who, name, world.clock.now())


async def settled(world: World, store: Store) -> int:
    return await settle_disks(world.uow, store, world.clock, RULES)


async def shown(world: World, name: str = "data") -> DiskRecord:
    async with world.uow() as uow:
        record = await uow.disks.named(world.who.user_id, name)
    assert record is not None
    return record


async def with_disk(world: World, *uses: DiskUse) -> str:
    new = world.new(disks=[{"name": use.name, "path": use.path, "read_only": use.read_only} for use in uses])
    await submit_with_disks(world.uow, world.who, new, world.clock.now())
    return new.reservation.id


async def ended(world: World, job: str) -> None:
    async with world.uow() as uow:
        await sql(uow, "UPDATE reservations SET status = 'succeeded', finished_at = now() WHERE id = :id", id=job)


async def test_a_disk_is_made_kept_after_its_deletion_and_then_removed(world: World, store: Store) -> None:
    disk = await created(world)
    assert (disk.state, await settled(world, store), store.sizes) == (DiskState.CREATING, 1, {disk.id: GIB})
    assert (await shown(world)).state is DiskState.READY
    await deleted(world)
    world.clock.go_on(KEPT - timedelta(seconds=1))
    assert (await settled(world, store), list(store.sizes)) == (0, [disk.id])
    async with world.uow() as uow:
        await restore_disk(uow, world.who, "data", NO_ROOM, world.clock.now())  # it has counted all the time
    await deleted(world)
    world.clock.go_on(KEPT)
    assert (await settled(world, store), store.sizes) == (1, {})
    async with world.uow() as uow:
        assert (await sql(uow, "SELECT count(*) FROM disks")).scalar_one() == 0
    assert await settled(world, store) == 0


async def test_a_disk_whose_step_fails_rests_and_the_others_go_on(world: World, store: Store) -> None:
    first = await created(world, "first")
    second = await created(world, "second")
    store.broken = min(first.id, second.id)  # the one that is tried first
    with pytest.raises(ClusterUnavailableError):
        await settled(world, store)
    assert (await settled(world, store), store.broken in store.sizes) == (1, False)
    store.broken = ""
    assert await settled(world, store) == 0
    world.clock.go_on(timedelta(minutes=2))
    assert (await settled(world, store), store.sizes.keys()) == (1, {first.id, second.id})


async def test_a_disk_that_could_not_be_made_goes_at_once_and_does_not_count(world: World, store: Store) -> None:
    store.full = True
    await created(world, size=BOUNDS.user_bytes)
    await settled(world, store)
    await deleted(world)
    store.full = False
    await created(world, "smaller")
    assert (await settled(world, store), len(store.sizes)) == (2, 1)
    async with world.uow() as uow:
        assert (await sql(uow, "SELECT count(*) FROM disks")).scalar_one() == 1


@pytest.mark.parametrize(
    ("bounds", "says"),
    [
        (DiskBounds(10 * GIB, 1000 * GIB), "Your disks would have 19 GiB together"),
        (DiskBounds(1000 * GIB, 10 * GIB), "All users' disks have 9 GiB together"),
    ],
)
async def test_a_disk_that_was_given_up_is_restored_where_there_is_room(
    world: World, store: Store, bounds: DiskBounds, says: str
) -> None:
    store.full = True
    disk = await created(world, size=10 * GIB)
    await settled(world, store)
    await deleted(world)
    await created(world, "other", 9 * GIB)
    async with world.uow() as uow:
        with pytest.raises(LimitExceededError) as refused:
            await restore_disk(uow, world.who, "data", bounds, world.clock.now())
    assert says in str(refused.value)
    assert "Create a smaller disk instead, or ask an administrator for room." in str(refused.value)
    async with world.uow() as uow:
        enough = DiskBounds(19 * GIB, 19 * GIB)
        restored = await restore_disk(uow, world.who, "data", enough, world.clock.now())
    assert (restored.id, restored.state) == (disk.id, DiskState.CREATING)


async def test_a_user_who_is_being_disabled_gets_no_disk(world: World, store: Store) -> None:
    disk = await created(world)
    root = replace(world.who, user="root", user_id=-1, role=Role.ADMIN)
    async with world.uow() as uow:
        heir = await uow.identities.create_user("heir", Role.USER, world.clock.now())

    async def give() -> None:
        changes = DiskChanges(owner="heir")
        async with world.uow() as uow:
            await change_disk(uow, root, "data", changes, BOUNDS, world.clock.now(), user=world.who.user)

    async with world.uow() as uow:
        await sql(uow, "UPDATE users SET disabled_at = now() WHERE id = :id", id=heir.id)
        giving = asyncio.create_task(give())
        await eventually(lambda: _somebody_waits(world))
    with pytest.raises(UserDisabledError, match="heir is disabled and gets no disks"):
        await giving
    assert (await shown(world)).id == disk.id


async def _somebody_waits(world: World) -> bool:
    async with world.uow() as uow:
        return (await sql(uow, _WAITS)).first() is not None


async def test_a_size_that_was_refused_may_be_taken_back_and_no_more(world: World, store: Store) -> None:
    await created(world, size=2 * GIB)
    await settled(world, store)
    store.full = True
    for size in (8 * GIB, 4 * GIB):
        async with world.uow() as uow:
            await change_disk(uow, world.who, "data", DiskChanges(size_bytes=size), BOUNDS, world.clock.now())
        await settled(world, store)
    async with world.uow() as uow:
        with pytest.raises(DomainError, match="can't be made smaller"):
            await change_disk(uow, world.who, "data", DiskChanges(size_bytes=GIB), BOUNDS, world.clock.now())
        await change_disk(uow, world.who, "data", DiskChanges(size_bytes=2 * GIB), BOUNDS, world.clock.now())
    assert (await shown(world)).state is DiskState.READY


async def test_what_can_not_be_made_says_why_and_is_tried_again(world: World, store: Store) -> None:
    await created(world)
    store.full = True
    assert await settled(world, store) == 0
    assert ((await shown(world)).problem, (await shown(world)).state) == ("no room", DiskState.CREATING)
    store.full = False
    assert await settled(world, store) == 0
    world.clock.go_on(timedelta(minutes=2))
    await settled(world, store)
    assert ((await shown(world)).problem, (await shown(world)).state) == (None, DiskState.READY)


async def test_a_larger_size_comes_to_the_store(world: World, store: Store) -> None:
    disk = await created(world)
    await settled(world, store)
    async with world.uow() as uow:
        changed = await change_disk(uow, world.who, "data", DiskChanges(size_bytes=2 * GIB), BOUNDS, world.clock.now())
    assert (changed.state, await settled(world, store), store.sizes) == (DiskState.RESIZING, 1, {disk.id: 2 * GIB})


async def test_disks_are_measured_after_their_jobs(world: World, store: Store) -> None:
    await created(world)
    await settled(world, store)
    await measure_disks(world.uow, store, world.clock, RULES)
    first = (await shown(world)).measured_at
    job = await with_disk(world, DiskUse("data", "/data"))
    world.clock.go_on(timedelta(seconds=30))
    await measure_disks(world.uow, store, world.clock, RULES)
    assert ((await shown(world)).measured_at, (await shown(world)).used_bytes) == (first, GIB // 2)
    await ended(world, job)
    await measure_disks(world.uow, store, world.clock, RULES)
    assert (await shown(world)).measured_at == world.clock.now()


async def test_the_database_keeps_one_writer_and_disks_of_open_jobs(world: World, store: Store) -> None:
    disk = await created(world)
    await with_disk(world, DiskUse("data", "/data"))
    reader = await with_disk(world, DiskUse("data", "/data", read_only=True))
    with pytest.raises(DiskInUseError):
        await with_disk(world, DiskUse("data", "/data"))
    for statement, constraint in (
        ("UPDATE disk_uses SET read_only = false", "disk_uses_one_writer"),
        ("UPDATE disks SET deleted_at = now()", "disk_uses_of_live"),
        ("DELETE FROM disks", "disk_uses_of_live"),
        ("DELETE FROM disk_uses", "still has the disk"),
        ("UPDATE disks SET user_id = -1", "A job has the disk"),
    ):
        with pytest.raises(IntegrityError, match=constraint):
            async with world.uow() as uow:
                await sql(uow, statement)
    await ended(world, reader)
    async with world.uow() as uow:
        await uow.disks.end_uses(world.clock.now(), 10)
    assert [use.read_only for use in (await shown(world)).uses] == [False]
    assert disk.id == (await shown(world)).id


_USE = "INSERT INTO disk_uses (disk_id, reservation_id, read_only) VALUES (:disk, :job, true)"
_GIVE = "UPDATE disks SET user_id = :heir"


@pytest.mark.parametrize("first", ["use", "hand-over"])
async def test_a_use_that_is_added_beside_a_hand_over_keeps_disks_with_their_users(
    world: World, store: Store, first: str
) -> None:
    """In whatever order both are written, and with SQL of any kind."""
    disk = await created(world)
    job = await world.submitted()
    async with world.uow() as uow:
        heir = await uow.identities.create_user("heir", Role.USER, world.clock.now())

    async def write(statement: str) -> None:
        async with world.uow() as uow:
            await sql(uow, statement, **values[statement])

    values: dict[str, dict[str, object]] = {_USE: {"disk": disk.id, "job": job}, _GIVE: {"heir": heir.id}}
    one, other, refused = (_USE, _GIVE, "A job has") if first == "use" else (_GIVE, _USE, "is not of the user of")
    async with world.uow() as uow:
        await sql(uow, one, **values[one])
        second = asyncio.create_task(write(other))
        await eventually(lambda: _somebody_waits(world))
    with pytest.raises(IntegrityError, match=refused):
        await second


async def test_a_disk_that_is_deleted_while_it_is_tried_again_passes_no_bound(world: World, store: Store) -> None:
    store.full = True
    await created(world, size=BOUNDS.user_bytes)
    await settled(world, store)
    world.clock.go_on(timedelta(minutes=2))
    store.full = False
    make = store.make

    async def make_meanwhile(disk_id: str, size_bytes: int) -> None:
        await make(disk_id, size_bytes)
        await deleted(world)
        await created(world, "other", BOUNDS.user_bytes)

    with patch.object(store, "make", make_meanwhile):
        await settled(world, store)
    async with world.uow() as uow:
        assert await uow.disks.totals(world.who.user_id, "") == (1, BOUNDS.user_bytes)
    await settled(world, store)
    assert list(store.sizes) == [(await shown(world, "other")).id]


async def test_histories_with_kills_leave_no_orphan_and_lose_nothing(world: World, store: Store) -> None:
    """At the end the store has what the rows say, whatever was killed, in whatever order things were asked."""
    for seed in range(12):
        chance = random.Random(seed)
        jobs: list[str] = []
        for _ in range(25):
            store.kill = iter([chance.choice(["", "before", "after"]) for _ in range(3)])
            name = chance.choice("abc")
            try:
                match chance.randrange(6):
                    case 0:
                        await created(world, name, GIB * chance.randint(1, 4))
                    case 1:
                        await deleted(world, name)
                    case 2:
                        async with world.uow() as uow:
                            await restore_disk(uow, world.who, name, BOUNDS, world.clock.now())
                    case 3:
                        jobs.append(await with_disk(world, DiskUse(name, "/x", read_only=chance.random() < 0.5)))
                    case 4 if jobs:
                        await ended(world, jobs.pop(chance.randrange(len(jobs))))
                    case _:
                        world.clock.go_on(timedelta(days=chance.randint(0, 20)))
                        await settled(world, store)
            except (DomainError, KilledError):
                pass
        for job in jobs:
            await ended(world, job)
        store.kill = iter(())
        await measure_disks(world.uow, store, world.clock, RULES)
        while await settled(world, store):
            pass
        async with world.uow() as uow:
            rows = (await sql(uow, "SELECT id, made_bytes FROM disks")).all()
            assert store.sizes.keys() <= {row.id for row in rows}, seed
            assert {row.id for row in rows if row.made_bytes is not None} <= store.sizes.keys(), seed
            live = await sql(uow, "SELECT id, size_bytes FROM disks WHERE deleted_at IS NULL")
            assert all(store.sizes[row.id] == row.size_bytes for row in live), seed
            assert (await sql(uow, "SELECT count(*) FROM disk_uses")).scalar_one() == 0, seed


def test_the_statuses_of_the_migration_are_the_final_ones() -> None:
    assert {status.value for status in JobStatus} - {"queued", "starting", "running", "ending"} == {
        "succeeded", "failed", "cancelled", "expired",
    }  # fmt: skip

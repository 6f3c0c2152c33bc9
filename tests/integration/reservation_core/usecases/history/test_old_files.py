"""What nobody uses any more is removed, in small parts, and nothing that an open job begins with."""

from datetime import timedelta
from hashlib import sha256
from typing import Any

import pytest

from reservation_core.domain.sync.folders import EntryKind, FolderEntry
from reservation_core.ports.jobs.job_files import FileBounds
from reservation_core.usecases.history import old_files
from reservation_core.usecases.history.old_files import remove_old_files
from reservation_core.usecases.jobs import job_files
from reservation_core.usecases.jobs.job_files import put_folder, store_chunks
from tests.integration.reservation_core.usecases.world import World

BOUNDS = FileBounds(2**40, 2**40, 2**40)
DAY = timedelta(days=1)
KEEP = 30 * DAY


async def sent(world: World, *files: bytes) -> str:
    """A folder of the world's user with files of these contents."""
    async with world.uow() as uow:
        chunks = [(sha256(data).digest(), data) for data in files]
        await store_chunks(uow, world.who, chunks, BOUNDS, world.clock.now())
        entries = [
            FolderEntry(f"f{number}", EntryKind.FILE, len(data), chunks=(sha256(data).hexdigest(),))
            for number, data in enumerate(files)
        ]
        folder, missing = await put_folder(uow, world.who, entries, BOUNDS, world.clock.now())
    assert (folder is None, missing) == (False, [])
    return str(folder)


async def look(world: World) -> int:
    now = world.clock.now()
    return await remove_old_files(world.uow, now - KEEP, now)


async def left(world: World) -> tuple[set[bytes], set[str]]:
    """Chunks and folders that are there; their bytes are those that are counted."""
    chunks: Any = (await world.sql("SELECT data, bytes FROM sent_chunks")).all()
    folders: Any = (await world.sql("SELECT encode(digest, 'hex') AS id, bytes FROM sent_folders")).all()
    counted = (await world.sql("SELECT coalesce(sum(bytes), 0) FROM sent_bytes")).scalar_one()
    assert counted == sum(row.bytes for row in [*chunks, *folders])
    return {bytes(row.data) for row in chunks}, {row.id for row in folders}


async def test_what_nobody_uses_is_removed_after_its_time(world: World) -> None:
    old = await sent(world, b"old", b"both")
    world.clock.go_on(29 * DAY)
    new = await sent(world, b"new", b"both")
    world.clock.go_on(2 * DAY)
    await look(world)
    assert await left(world) == ({b"new", b"both"}, {new})
    assert old != new
    world.clock.go_on(30 * DAY)
    await look(world)
    assert await left(world) == (set(), set())


async def test_what_an_open_job_begins_with_stays(world: World) -> None:
    needed, other = await sent(world, b"needed"), await sent(world, b"other")
    job = await world.submitted(sync={"folder": needed})
    for _ in range(3):
        world.clock.go_on(31 * DAY)
        await look(world)
        assert await left(world) == ({b"needed"}, {needed})
    assert needed != other
    await world.sql(
        "UPDATE reservations SET status = 'cancelled', finished_at = :now WHERE id = :id",
        now=world.clock.now(),
        id=job,
    )
    world.clock.go_on(31 * DAY)
    await look(world)
    assert await left(world) == (set(), set())


async def test_a_folder_that_is_used_again_keeps_its_chunks(world: World) -> None:
    """`--again` and REST name a folder without sending its list; also many times in a short time."""
    folder = await sent(world, b"x")
    for pause in [timedelta(minutes=50)] * 3 + [29 * DAY] * 2:
        world.clock.go_on(pause)
        async with world.uow() as uow:
            await job_files.use_folder(uow, world.who.user_id, folder, world.clock.now())
    oldest: Any = (await world.sql("SELECT min(used_at) FROM sent_chunks")).scalar_one()
    latest: Any = (await world.sql("SELECT max(used_at) FROM sent_folders")).scalar_one()
    assert latest - oldest <= timedelta(hours=1)
    world.clock.go_on(29 * DAY)
    await look(world)
    assert await left(world) == ({b"x"}, {folder})


async def test_results_go_with_their_folder(world: World) -> None:
    job = await world.submitted(sync={"fetch": ["f0"]})
    folder = await sent(world, b"result")
    async with world.uow() as uow:
        await job_files.keep_results(uow, world.who, job, folder, world.clock.now())
        assert (await job_files.results_of(uow, world.who, job))[0] == folder
    world.clock.go_on(31 * DAY)
    await look(world)
    assert (await world.sql("SELECT count(*) FROM job_results")).scalar_one() == 0


async def test_many_are_removed_in_parts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(old_files, "OLD_FOLDERS", 2)
    monkeypatch.setattr(old_files, "OLD_CHUNKS", 2)
    for number in range(5):
        await sent(world, b"%d" % number)
    world.clock.go_on(31 * DAY)
    assert [await look(world) for _ in range(5)] == [2, 2, 3, 2, 1]
    assert await left(world) == (set(), set())


async def test_a_chunk_is_in_use_while_a_folder_is_put(world: World) -> None:
    """A folder that was put a moment before its chunks are old keeps them."""
    await sent(world, b"x")
    world.clock.go_on(31 * DAY)
    async with world.uow() as putting:
        held = await putting.files.sizes(world.who.user_id, {sha256(b"x").digest()}, world.clock.now())
        await look(world)
        assert held == {sha256(b"x").digest(): 1}
    assert (await left(world))[0] == {b"x"}

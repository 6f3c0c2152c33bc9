"""Folders of disks, in which jobs make of files and permissions what they want."""

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pytest

from reservation_core.adapters.local.disks import tree_copies
from reservation_core.adapters.local.disks.disk_folders import DiskFolders
from reservation_core.adapters.local.disks.tree_copies import MOST_DEPTH, TreeCopy
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.disks.disks import DiskCopy, DiskRefusedError
from tests.waiting import eventually_sync

DISK = "disk-a"
MIB = 2**20
SNAPSHOT = "snap-1"
TAKEN = DiskCopy(DISK, 64 * MIB, "the snapshot monday", is_still=True, into_snapshot_id=SNAPSHOT)
_SOMEBODY = 65_534


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder of somebody whom permissions bind, as whom the test goes on: they don't bind root."""
    with TemporaryDirectory() as folder:
        is_root = os.geteuid() == 0
        if is_root:
            os.chown(folder, _SOMEBODY, -1)
            os.seteuid(_SOMEBODY)
        try:
            yield Path(folder)
        finally:
            if is_root:
                os.seteuid(0)


@pytest.fixture
async def disks(home: Path) -> DiskFolders:
    found = DiskFolders(home)
    await found.make(DISK, MIB)
    return found


def as_a_job(folder: Path) -> None:
    """Files in a folder that nobody may change, one that nobody may enter, and links to what is elsewhere."""
    (folder / "kept" / "deep").mkdir(parents=True)
    (folder / "kept" / "deep" / "file").write_bytes(b"x" * MIB)
    (folder / "closed" / "inner").mkdir(parents=True)
    (folder / "closed" / "inner" / "file").write_bytes(b"y")
    (folder / "closed" / "inner").chmod(0o555)
    outside = folder.parent.parent / "outside"
    outside.mkdir()
    (outside / "file").write_text("not the disk's")
    (folder / "link").symlink_to(outside, target_is_directory=True)
    (folder / "kept" / "link").symlink_to(outside / "file")
    (folder / "kept" / "deep").chmod(0o444)
    (folder / "kept").chmod(0o555)
    (folder / "closed").chmod(0)


async def test_what_a_job_has_made_read_only_is_measured_and_removed(disks: DiskFolders, home: Path) -> None:
    folder = home / "disks" / DISK
    as_a_job(folder)
    used = await disks.measure(DISK, MIB)
    assert used is not None
    assert used < 2 * MIB
    await disks.remove(DISK)
    assert not folder.exists()
    assert (home / "outside" / "file").read_text() == "not the disk's"
    await disks.remove(DISK)
    assert await disks.measure(DISK, MIB) is None


async def test_files_that_can_not_be_looked_at_do_not_count(disks: DiskFolders, home: Path) -> None:
    closed = home / "disks" / DISK / "closed"
    closed.mkdir()
    without = await disks.measure(DISK, MIB)
    (closed / "file").write_bytes(b"x" * MIB)
    closed.chmod(0)
    assert await disks.measure(DISK, MIB) == without


async def test_folders_count_as_files_do(disks: DiskFolders, home: Path) -> None:
    """A file system that gives folders blocks runs full of them."""
    folder = home / "disks" / DISK
    for number in range(100):
        (folder / str(number)).mkdir()
    blocks = sum((folder / str(number)).stat().st_blocks for number in range(100))
    assert await disks.measure(DISK, MIB) == blocks * 512


def in_each_other(folder: Path, name: str, folders: int) -> int:
    """So many folders, the last one opened: its path may be longer than the system takes."""
    inner = os.open(folder, os.O_RDONLY)
    for _ in range(folders):
        os.mkdir(name, dir_fd=inner)
        outer, inner = inner, os.open(name, os.O_RDONLY, dir_fd=inner)
        os.close(outer)
    return inner


async def test_a_path_that_is_too_long_is_refused_and_removed(disks: DiskFolders, home: Path) -> None:
    last = in_each_other(home / "disks" / DISK, "d" * 250, 20)
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=last))
    os.link("file", "again", src_dir_fd=last, dst_dir_fd=last)
    os.close(last)
    with pytest.raises(DiskRefusedError, match=r"The path d+ is too long\. Move it up"):
        await disks.copy(TAKEN)
    await disks.remove(DISK)
    assert [path.name for path in (home / "disks").iterdir()] == [".copying"]


async def test_folders_of_any_depth_are_measured_and_removed(disks: DiskFolders, home: Path) -> None:
    last = in_each_other(home / "disks" / DISK, "d", sys.getrecursionlimit() + 100)
    os.fchmod(last, 0o500)
    os.close(last)
    assert await disks.measure(DISK, MIB) is not None
    with pytest.raises(DiskRefusedError, match=f"More than {MOST_DEPTH} folders"):
        await disks.copy(TAKEN)
    await disks.remove(DISK)
    assert [path.name for path in (home / "disks").iterdir()] == [".copying"]


async def test_what_a_killed_process_left_makes_room_first(disks: DiskFolders, home: Path) -> None:
    (home / "disks" / DISK / "file").write_bytes(b"x" * MIB)
    part = home / "disks" / f".part-{SNAPSHOT}"
    part.mkdir()
    (part / "file").write_bytes(b"x" * MIB)

    def usage(_: object) -> shutil._ntuple_diskusage:
        return shutil._ntuple_diskusage(2**40, 0, 0 if part.exists() else 2**40)

    with patch("reservation_core.adapters.local.disks.disk_folders.shutil.disk_usage", usage):
        assert await disks.copy(TAKEN)


async def test_a_disk_that_is_larger_than_the_file_system_is_refused(disks: DiskFolders) -> None:
    with pytest.raises(DiskRefusedError, match="GiB left for disks, less than the disk is to have"):
        await disks.make("disk-b", 2**50)


def seen(root: Path) -> dict[str, tuple[object, ...]]:
    """The entries of a folder by paths: kinds, permissions, times, contents, and which names are one file."""
    found: dict[str, tuple[object, ...]] = {}
    inodes: dict[int, str] = {}
    for path in sorted(root.rglob("*")):
        name, about = str(path.relative_to(root)), path.lstat()
        first = inodes.setdefault(about.st_ino, name)
        content = path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        times = () if path.is_symlink() else (about.st_mtime_ns,)
        found[name] = (about.st_mode, content, first, *times)
    return found


async def test_a_copy_is_as_the_disk_was(disks: DiskFolders, home: Path) -> None:
    folder = home / "disks" / DISK
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "er" / "file").write_bytes(os.urandom(3 * MIB))
    (folder / "deep" / "tool").write_text("#!/bin/sh")
    (folder / "deep" / "tool").chmod(0o750)
    os.link(folder / "deep" / "tool", folder / "again")
    (folder / os.fsdecode(b"not-\xff-text")).write_text("bytes")
    (folder / "empty").touch()
    outside = home / "outside"
    outside.mkdir()
    (outside / "file").write_text("not the disk's")
    (folder / "link").symlink_to(outside, target_is_directory=True)
    (folder / "dangling").symlink_to("nowhere")
    os.utime(folder / "deep" / "tool", ns=(10**18, 10**18))
    (folder / "deep").chmod(0o555)
    before = seen(folder)
    assert await disks.copy(TAKEN)
    assert seen(home / "disks" / SNAPSHOT) == before == seen(folder)
    assert sorted(path.name for path in (home / "disks").iterdir()) == [".copying", DISK, SNAPSHOT]
    assert await disks.copy(TAKEN)
    await disks.remove_snapshot(SNAPSHOT)
    await disks.remove_snapshot(SNAPSHOT)
    assert seen(folder) == before


async def test_holes_take_no_room_and_pipes_are_left_out(disks: DiskFolders, home: Path) -> None:
    folder = home / "disks" / DISK
    os.mkfifo(folder / "pipe")
    with (folder / "sparse").open("wb") as file:
        file.seek(2**34)
        file.write(b"end")
        file.truncate(2**34 + MIB)
    assert await disks.copy(TAKEN)
    copied = home / "disks" / SNAPSHOT
    assert [path.name for path in copied.iterdir()] == ["sparse"]
    assert (copied / "sparse").stat().st_size == 2**34 + MIB
    assert (copied / "sparse").stat().st_blocks * 512 < MIB
    with (copied / "sparse").open("rb") as file:
        file.seek(2**34)
        assert file.read(4) == b"end\0"


async def test_what_becomes_a_link_meanwhile_leads_nowhere(disks: DiskFolders, home: Path) -> None:
    folder, outside = home / "disks" / DISK, home / "outside"
    outside.mkdir()
    (outside / "file").write_text("not the disk's")
    (folder / "inner").mkdir()
    (folder / "file").write_text("the disk's")
    lstat = os.lstat

    def swapped(name: str, *, dir_fd: int | None = None) -> os.stat_result:
        found = lstat(name, dir_fd=dir_fd)
        if name == "inner" and not (folder / "inner").is_symlink():
            (folder / "inner").rmdir()
            (folder / "inner").symlink_to(outside, target_is_directory=True)
        if name == "file" and not (folder / "file").is_symlink():
            (folder / "file").unlink()
            (folder / "file").symlink_to(outside / "file")
        return found

    with patch("reservation_core.adapters.local.disks.tree_copies.os.lstat", swapped):
        assert await disks.copy(TAKEN)
    assert [*(home / "disks" / SNAPSHOT).iterdir()] == []


async def test_what_can_not_be_copied_leaves_nothing(disks: DiskFolders, home: Path) -> None:
    folder = home / "disks" / DISK
    (folder / "secret").write_text("x")
    (folder / "secret").chmod(0)
    with pytest.raises(DiskRefusedError, match="may not read secret"):
        await disks.copy(TAKEN)
    (folder / "secret").unlink()
    (folder / "much").write_bytes(os.urandom(2 * MIB))
    with pytest.raises(DiskRefusedError, match="more on the disk than its size"):
        await disks.copy(DiskCopy(DISK, MIB, "", is_still=True, into_snapshot_id=SNAPSHOT))
    full = OSError(errno.ENOSPC, "full")
    with patch.object(TreeCopy, "make", side_effect=full), pytest.raises(DiskRefusedError, match="became full"):
        await disks.copy(TAKEN)
    deep = folder.joinpath(*["d"] * (MOST_DEPTH + 1))
    deep.mkdir(parents=True)
    with pytest.raises(DiskRefusedError, match=f"More than {MOST_DEPTH} folders"):
        await disks.copy(TAKEN)
    assert sorted(path.name for path in (home / "disks").iterdir()) == [".copying", DISK]


@pytest.mark.parametrize(("total", "reserve"), [(2**40, 2**30), (200 * MIB, 10 * MIB)])
async def test_disks_leave_the_server_some_room(disks: DiskFolders, home: Path, total: int, reserve: int) -> None:
    """The database and jobs of others have the same file system."""
    (home / "disks" / DISK / "file").write_bytes(b"x" * MIB)
    used = await disks.measure(DISK, MIB)
    assert used is not None
    free = [reserve + used - 1, reserve + used]

    def usage(_: object) -> shutil._ntuple_diskusage:
        return shutil._ntuple_diskusage(total, total - free[0], free[0])

    with patch("reservation_core.adapters.local.disks.disk_folders.shutil.disk_usage", usage):
        for asked in (disks.copy(TAKEN), disks.make("disk-b", used)):
            with pytest.raises(DiskRefusedError, match="GiB left for disks"):
                await asked
        free.pop(0)
        await disks.make("disk-b", used)
        assert await disks.copy(TAKEN)


async def test_a_copy_counts_once_all_of_it_is_durable(disks: DiskFolders, home: Path) -> None:
    (home / "disks" / DISK / "file").write_text("kept")
    synced: list[tuple[str, list[str]]] = []
    sync, target = tree_copies.sync_file_system, home / "disks" / SNAPSHOT

    def seen_sync(file: int) -> None:
        assert not target.exists()
        synced.append((Path(f"/proc/self/fd/{file}").readlink().name, sorted(os.listdir(file))))
        sync(file)

    with patch.object(tree_copies, "sync_file_system", seen_sync):
        assert await disks.copy(TAKEN)
    assert synced == [(f".part-{SNAPSHOT}", ["file"])]
    failed = OSError(errno.EIO, "the device is broken")
    again = replace(TAKEN, into_snapshot_id="snap-2")
    with patch.object(tree_copies, "sync_file_system", side_effect=failed), pytest.raises(ClusterUnavailableError):
        await disks.copy(again)
    assert not (home / "disks" / "snap-2").exists()
    with pytest.raises(OSError, match="Bad file descriptor"):
        sync(10**6)


async def test_a_file_system_without_attributes_is_copied(disks: DiskFolders, home: Path) -> None:
    (home / "disks" / DISK / "file").write_text("kept")
    with patch("os.listxattr", side_effect=OSError(errno.EOPNOTSUPP, "not supported")):
        assert await disks.copy(TAKEN)
    assert (home / "disks" / SNAPSHOT / "file").read_text() == "kept"


async def test_a_file_that_runs_as_its_owner_stays_the_owners(tmp_path: Path) -> None:
    """A copy that is another user's, such as root's, does not run as that one."""
    disks = DiskFolders(tmp_path)
    await disks.make(DISK, MIB)
    tool = tmp_path / "disks" / DISK / "tool"
    tool.write_text("#!/bin/sh")
    copied = tmp_path / "disks" / SNAPSHOT / "tool"
    if os.geteuid() == 0:
        os.chown(tool, _SOMEBODY, _SOMEBODY)
    tool.chmod(0o4755)
    assert await disks.copy(TAKEN)
    assert (copied.stat().st_uid, copied.stat().st_mode) == (tool.stat().st_uid, tool.stat().st_mode)
    await disks.remove_snapshot(SNAPSHOT)
    with patch("os.fchown", side_effect=PermissionError(errno.EPERM, "not yours")):
        assert await disks.copy(TAKEN)
    assert copied.stat().st_mode & 0o7777 == 0o755


async def test_what_grows_while_it_is_copied_is_bounded(disks: DiskFolders, home: Path) -> None:
    (home / "disks" / DISK / "much").write_bytes(os.urandom(2 * MIB))
    measured = "reservation_core.adapters.local.disks.disk_folders._size"
    with patch(measured, return_value=0), pytest.raises(DiskRefusedError, match="more on the disk than its size"):
        await disks.copy(DiskCopy(DISK, MIB, "", is_still=True, into_snapshot_id=SNAPSHOT))


async def test_one_process_copies_and_none_removes_that_meanwhile(disks: DiskFolders, home: Path) -> None:
    part = home / "disks" / f".part-{SNAPSHOT}"
    part.mkdir()
    with (home / "disks" / ".copying").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not await disks.copy(TAKEN)
        with pytest.raises(DiskRefusedError, match="still being copied"):
            await disks.remove(SNAPSHOT)
    assert await disks.copy(TAKEN)
    assert not part.exists()


async def test_an_empty_folder_of_a_process_that_knows_no_copies_is_no_copy(disks: DiskFolders, home: Path) -> None:
    (home / "disks" / DISK / "file").write_text("kept")
    (home / "disks" / SNAPSHOT).mkdir()
    assert await disks.copy(TAKEN)
    assert (home / "disks" / SNAPSHOT / "file").read_text() == "kept"


_COPYING = """
import asyncio, sys
from dataclasses import replace
from pathlib import Path
from reservation_core.adapters.local.disks import tree_copies
from reservation_core.adapters.local.disks.disk_folders import DiskFolders
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.disks.disks import DiskCopy
copy = DiskCopy(sys.argv[2], 2**30, "", is_still=True, into_snapshot_id=sys.argv[3])
asyncio.run(DiskFolders(Path(sys.argv[1])).copy(copy))
"""


def entries(folder: Path) -> int:
    """How many there are in a folder, which may go at any moment."""
    try:
        return len([*folder.iterdir()])
    except FileNotFoundError:
        return 0


async def test_a_copy_whose_process_is_killed_is_begun_anew(tmp_path: Path) -> None:
    """However often and whenever: a copy is there as a whole, or not at all."""
    disks, home, folder = DiskFolders(tmp_path), tmp_path, tmp_path / "disks" / DISK
    await disks.make(DISK, MIB)
    for number in range(400):
        (folder / f"{number:03}").write_bytes(os.urandom(2**14))
    before, target, part = seen(folder), home / "disks" / SNAPSHOT, home / "disks" / f".part-{SNAPSHOT}"
    for least in (1, 50, 150, 300):
        command = [sys.executable, "-c", _COPYING, str(home), DISK, SNAPSHOT]
        with subprocess.Popen(command) as copying:
            eventually_sync(lambda least=least: target.exists() or entries(part) >= least)
            copying.send_signal(signal.SIGKILL)
        assert not target.exists() or seen(target) == before
    assert await disks.copy(DiskCopy(DISK, 2**30, "", is_still=True, into_snapshot_id=SNAPSHOT))
    assert (seen(target), part.exists()) == (before, False)

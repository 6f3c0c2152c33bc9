"""Folders of disks, in which jobs make of files and permissions what they want."""

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from reservation_core.adapters.local.disks.disk_folders import DiskFolders
from reservation_core.ports.disks.disks import DiskRefusedError

DISK = "disk-a"
MIB = 2**20
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
    used = await disks.used_bytes(DISK)
    assert used is not None
    assert used < 2 * MIB
    await disks.remove(DISK)
    assert not folder.exists()
    assert (home / "outside" / "file").read_text() == "not the disk's"
    await disks.remove(DISK)
    assert await disks.used_bytes(DISK) is None


async def test_files_that_can_not_be_looked_at_do_not_count(disks: DiskFolders, home: Path) -> None:
    closed = home / "disks" / DISK / "closed"
    closed.mkdir()
    (closed / "file").write_bytes(b"x" * MIB)
    closed.chmod(0)
    assert await disks.used_bytes(DISK) == 0


async def test_a_disk_that_is_larger_than_the_file_system_is_refused(disks: DiskFolders) -> None:
    with pytest.raises(DiskRefusedError, match="GiB left, less than the disk is to have"):
        await disks.make("disk-b", 2**50)

"""Folders of disks, in which jobs make of files and permissions what they want."""

import os
from pathlib import Path

import pytest

from reservation_core.adapters.local.disks.disk_folders import DiskFolders
from reservation_core.ports.disks.disks import DiskRefusedError

DISK = "disk-a"
MIB = 2**20


@pytest.fixture
async def disks(tmp_path: Path) -> DiskFolders:
    found = DiskFolders(tmp_path)
    await found.make(DISK, MIB)
    return found


def as_a_job(folder: Path) -> None:
    """Files in a folder that nobody may change, one that nobody may enter, and links to what is elsewhere."""
    (folder / "kept" / "deep").mkdir(parents=True)
    (folder / "kept" / "deep" / "file").write_bytes(b"x" * MIB)
    (folder / "closed").mkdir()
    (folder / "closed" / "file").write_bytes(b"y")
    outside = folder.parent.parent / "outside"
    outside.mkdir()
    (outside / "file").write_text("not the disk's")
    (folder / "link").symlink_to(outside, target_is_directory=True)
    (folder / "kept" / "link").symlink_to(outside / "file")
    (folder / "kept" / "deep").chmod(0o444)
    (folder / "kept").chmod(0o555)
    (folder / "closed").chmod(0)


async def test_what_a_job_has_made_read_only_is_measured_and_removed(disks: DiskFolders, tmp_path: Path) -> None:
    folder = tmp_path / "disks" / DISK
    as_a_job(folder)
    used = await disks.used_bytes(DISK)
    assert used is not None
    assert used < 3 * MIB
    await disks.remove(DISK)
    assert not folder.exists()
    assert (tmp_path / "outside" / "file").read_text() == "not the disk's"
    await disks.remove(DISK)
    assert await disks.used_bytes(DISK) is None


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
async def test_files_that_can_not_be_looked_at_do_not_count(disks: DiskFolders, tmp_path: Path) -> None:
    closed = tmp_path / "disks" / DISK / "closed"
    closed.mkdir()
    (closed / "file").write_bytes(b"x" * MIB)
    closed.chmod(0)
    assert await disks.used_bytes(DISK) == 0


async def test_a_disk_that_is_larger_than_the_file_system_is_refused(disks: DiskFolders) -> None:
    with pytest.raises(DiskRefusedError, match="GiB left, less than the disk is to have"):
        await disks.make("disk-b", 2**50)

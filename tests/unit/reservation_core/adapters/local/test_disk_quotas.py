"""File systems and folders of disks on which quotas are not as usual; see the integration tests for those that are."""

import errno
import os
import struct
from pathlib import Path
from unittest.mock import patch

import pytest
from structlog.testing import capture_logs

from reservation_core.adapters.local.disks import disk_folders, disk_quotas
from reservation_core.adapters.local.disks.disk_folders import DiskFolders
from reservation_core.adapters.local.disks.disk_quotas import why_unbounded

MIB = 2**20


async def test_the_folder_of_disks_may_be_a_link_to_another_file_system(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (tmp_path / "disks").symlink_to(elsewhere)
    disks = DiskFolders(tmp_path)
    await disks.make("disk-a", MIB)
    assert (elsewhere / "disk-a").is_dir()
    assert await disks.measure("disk-a", MIB) is not None
    await disks.remove("disk-a")
    assert not (elsewhere / "disk-a").exists()


@pytest.mark.parametrize("number", [errno.ENOTTY, errno.EOPNOTSUPP, errno.ELOOP, errno.ENOTDIR, errno.EPERM])
def test_a_file_that_can_have_no_project_keeps_others_from_none(tmp_path: Path, number: int) -> None:
    """As one of a file system that a job has mounted in its disk, or one that it replaces by a link meanwhile."""
    names = [f"file-{index}" for index in range(5)]
    for name in names:
        (tmp_path / name).write_bytes(b"x")
    given = []

    def set_project(opened: int, _: int, *, is_inherited: bool) -> None:
        name = Path(f"/proc/self/fd/{opened}").readlink().name
        assert is_inherited == (name == tmp_path.name)
        if name == names[2]:
            raise OSError(number, os.strerror(number))
        given.append(name)

    with patch.object(disk_quotas, "_set_project", set_project), disk_quotas._opened(tmp_path) as opened:
        disk_quotas._give_project(opened, 2**30, 0)
    assert {*given} == {tmp_path.name, *names} - {names[2]}


def test_quotas_without_project_ids_bound_nothing(tmp_path: Path) -> None:
    """As where the numbers of the calls are others, which some architectures have."""
    enforced = struct.pack("=bbH", 1, 0, 1 << 5).ljust(1024, b"\0")
    unknown = OSError(errno.ENOTTY, os.strerror(errno.ENOTTY))
    with patch.object(disk_quotas, "_quotactl", return_value=enforced):
        with patch("fcntl.ioctl", side_effect=unknown):
            assert "has no project quotas (Inappropriate ioctl" in (why_unbounded(tmp_path) or "")
        with patch("fcntl.ioctl", return_value=bytes(28)):
            assert why_unbounded(tmp_path) is None


async def test_without_linux_the_kernel_is_not_asked_and_nothing_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_folders, "ON_LINUX", False)
    with patch.object(disk_quotas, "_quotactl") as asked, capture_logs() as logged:
        disks = DiskFolders(tmp_path)
        await disks.make("disk-a", MIB)
        assert await disks.measure("disk-a", MIB) is not None
    assert (asked.call_count, logged) == (0, [])


async def test_why_disks_are_not_bounded_is_logged_once(tmp_path: Path) -> None:
    with patch.object(disk_folders, "why_unbounded", return_value="no quotas"), capture_logs() as logged:
        disks = DiskFolders(tmp_path)
        for name in ("disk-a", "disk-b"):
            await disks.make(name, MIB)
    assert [line["why"] for line in logged] == ["no quotas"]

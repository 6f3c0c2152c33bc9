"""File systems and folders of disks on which quotas are not as usual; see the integration tests for those that are."""

import errno
import os
import struct
from pathlib import Path
from unittest.mock import patch

import pytest

from reservation_core.adapters.local.disks import disk_quotas
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


def test_quotas_without_project_ids_bound_nothing(tmp_path: Path) -> None:
    """As where the numbers of the calls are others, which some architectures have."""
    enforced = struct.pack("=bbH", 1, 0, 1 << 5).ljust(1024, b"\0")
    unknown = OSError(errno.ENOTTY, os.strerror(errno.ENOTTY))
    with patch.object(disk_quotas, "_quotactl", return_value=enforced):
        with patch("fcntl.ioctl", side_effect=unknown):
            assert "has no project quotas (Inappropriate ioctl" in (why_unbounded(tmp_path) or "")
        with patch("fcntl.ioctl", return_value=bytes(28)):
            assert why_unbounded(tmp_path) is None

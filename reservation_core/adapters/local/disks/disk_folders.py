"""Disks of the local cluster: a folder each, `disks/<id>` below the home, which pods reach by links.

A folder has no quota: how much is on it is measured, and a job that would write to a disk with too much on it is
refused.
"""

import asyncio
import os
import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from typing import ParamSpec, TypeVar

from reservation_core.domain.disks.disk_uses import DiskUse
from reservation_core.domain.model import Reason, ReasonCode
from reservation_core.ports.cluster import ClusterUnavailableError, PodNotNowError
from reservation_core.ports.disks.disks import DiskRefusedError

P = ParamSpec("P")
T = TypeVar("T")

_FOLDER = "disks"
_BLOCK = 512  # what st_blocks counts
_GIB = 2**30


class DiskFolders:
    """The folders of disks below `home` (GPU_DEV_HOME)."""

    def __init__(self, home: Path) -> None:
        self._folder = home.absolute() / _FOLDER

    async def make(self, disk_id: str, size_bytes: int) -> None:
        """Make the folder of a disk. Raises DiskRefusedError where the file system lacks so much room."""
        await _in_thread(self._make, disk_id, size_bytes)

    async def remove(self, disk_id: str) -> None:
        """Remove the folder of a disk with all that is in it."""
        await _in_thread(self._remove, disk_id)

    async def used_bytes(self, disk_id: str) -> int | None:
        """How much the files of a disk take; None where the folder is missing."""
        return await _in_thread(self._used_bytes, disk_id)

    async def close(self) -> None:
        """Nothing is open."""

    def _make(self, disk_id: str, size_bytes: int) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        free = shutil.disk_usage(self._folder).free
        if size_bytes - (self._used_bytes(disk_id) or 0) > free:
            raise DiskRefusedError(
                f"The server's file system has {free / _GIB:.1f} GiB left, less than the disk is to have. Delete it and"
                " create a smaller one, or ask an administrator for room."
            )
        (self._folder / disk_id).mkdir(mode=0o700, exist_ok=True)

    def _remove(self, disk_id: str) -> None:
        root = self._folder / disk_id
        if not root.exists():
            return
        # Jobs make folders read-only, as caches of modules are. Links are removed, and not followed.
        root.chmod(0o700)
        for path, folders, _ in os.walk(root):
            for name in folders:
                if not (folder := Path(path, name)).is_symlink():
                    folder.chmod(0o700)
        shutil.rmtree(root)

    def _used_bytes(self, disk_id: str) -> int | None:
        folder = self._folder / disk_id
        return _size(folder) if folder.exists() else None


def link_disks(home: Path, links: Path, uses: Collection[DiskUse]) -> None:
    """Put a link to each disk's folder at the disk's path below `links`. Raises PodNotNowError for a missing folder."""
    for use in uses:
        folder = home / _FOLDER / (use.disk_id or "")
        if use.disk_id is None or not folder.is_dir():
            detail = (
                f"The folder of the disk {use.name} is not there yet. Ask an administrator to look at the server's file"
                " system."
            )
            raise PodNotNowError(Reason(ReasonCode.START_FAILED, detail))
        link = links / use.path.lstrip("/")
        link.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        link.symlink_to(folder, target_is_directory=True)


def _size(folder: Path) -> int:
    """What the files in a folder take of the file system, hard links once; files that vanish meanwhile are left out."""
    total, seen = 0, set[tuple[int, int]]()
    for path, _, files in os.walk(folder):
        for name in files:
            try:
                found = os.lstat(f"{path}/{name}")
            except OSError:  # it vanished, or its owner's folder can't be searched
                continue
            if (found.st_dev, found.st_ino) not in seen:
                if found.st_nlink > 1:
                    seen.add((found.st_dev, found.st_ino))
                total += found.st_blocks * _BLOCK
    return total


async def _in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a blocking function in a thread; an OSError becomes ClusterUnavailableError."""
    try:
        return await asyncio.to_thread(function, *args, **kwargs)
    except OSError as problem:
        raise ClusterUnavailableError(
            f"The folders of disks could not be changed: {problem}. Look at the file system's space and permissions."
        ) from problem

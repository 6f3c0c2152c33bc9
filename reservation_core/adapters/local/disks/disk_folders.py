"""Disks of the local cluster: a folder each, `disks/<id>` below the home, which pods reach by links.

The file system bounds a folder where it can (`disk_quotas`). Elsewhere how much is on it is measured, and a job that
would write to a disk with too much on it is refused. A snapshot is a folder beside them, `disks/<its id>`. A copy has
another name until it is complete.
"""

import asyncio
import errno
import fcntl
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import ParamSpec, TypeVar

import structlog

from reservation_core.adapters.local.disks.disk_quotas import bound, lift, quota_of, why_unbounded
from reservation_core.adapters.local.disks.tree_copies import TreeCopy, TreeRefusedError
from reservation_core.adapters.local.kernel import ON_LINUX
from reservation_core.domain.disks.disk_uses import DiskUse
from reservation_core.domain.model import Reason
from reservation_core.domain.statuses import ReasonCode
from reservation_core.ports.cluster import ClusterUnavailableError, PodNotNowError
from reservation_core.ports.disks.disks import DiskCopy, DiskRefusedError

P = ParamSpec("P")
T = TypeVar("T")

_log = structlog.get_logger(__name__)
_FOLDER = "disks"
_PART = ".part-"
_LOCK = ".copying"
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_BLOCK = 512  # what st_blocks counts
_GIB = 2**30
_RESERVE = 20
"""Of the file system, one part in so many, or 1 GiB where that is less, is not for disks."""
_OPENED = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


class DiskFolders:
    """The folders of disks below `home` (GPU_DEV_HOME)."""

    def __init__(self, home: Path) -> None:
        self._folder = home.absolute() / _FOLDER
        self._reported: str | None = None

    async def make(self, disk_id: str, size_bytes: int) -> None:
        """Make the folder of a disk. Raises DiskRefusedError where the file system lacks so much room."""
        await _in_thread(self._make, disk_id, size_bytes)

    async def remove(self, disk_id: str) -> None:
        """Remove the folder of a disk with all that is in it."""
        await _in_thread(self._remove, disk_id)

    async def copy(self, copy: DiskCopy) -> int | None:
        """Copy the folder of a disk or snapshot; None while another process copies. Raises DiskRefusedError."""
        stop = Event()
        try:
            return copy.size_bytes if await _in_thread(self._copy, copy, stop) else None
        finally:
            stop.set()  # cancelled: the thread does not go on for itself

    async def remove_snapshot(self, snapshot_id: str) -> None:
        """Remove the folder of a snapshot."""
        await self.remove(snapshot_id)

    async def measure(self, disk_id: str, size_bytes: int) -> int | None:
        """How much the files of a disk take; None where the folder is missing. Bounds the folder if nothing does."""
        return await _in_thread(self._measure, disk_id, size_bytes)

    async def close(self) -> None:
        """Nothing is open."""

    def _make(self, disk_id: str, size_bytes: int) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        free = self._free()
        if size_bytes - (self._used_bytes(disk_id) or 0) > free:
            raise DiskRefusedError(
                f"The server's file system has {free / _GIB:.1f} GiB left for disks, less than the disk is to have."
                " Delete it and create a smaller one, or ask an administrator for room."
            )
        folder = self._folder / disk_id
        folder.mkdir(mode=0o700, exist_ok=True)
        if self._is_bounding():
            bound(folder, size_bytes)

    def _measure(self, disk_id: str, size_bytes: int) -> int | None:
        folder = self._folder / disk_id
        # It is older than the file system's quotas, came from elsewhere, or an earlier version made it larger. Another
        # loop may have made it larger since the size was read.
        if folder.exists() and self._is_bounding() and quota_of(folder).limit < size_bytes:
            bound(folder, size_bytes)
        return self._used_bytes(disk_id)

    def _is_bounding(self) -> bool:
        """Whether the file system bounds folders, as of now: it may be mounted anew. A hindrance is logged once."""
        if not ON_LINUX:  # no other kernel has project quotas
            return False
        why_not = why_unbounded(self._folder)
        if why_not is not None and why_not != self._reported:
            _log.warning("the sizes of disks are measured, and not kept", why=why_not)
        self._reported = why_not
        return why_not is None

    def _remove(self, disk_id: str) -> None:
        part = self._part(disk_id)
        if part.exists():
            with self._copying() as is_ours:
                if not is_ours:
                    raise DiskRefusedError("It is still being copied, and is removed afterwards.")
                _remove_tree(part)
        folder = self._folder / disk_id
        if folder.exists() and self._is_bounding():
            lift(folder)
        _remove_tree(folder)

    def _copy(self, copy: DiskCopy, stop: Event) -> bool:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._copying() as is_ours:
            if is_ours:
                self._copy_alone(copy, stop)
                if copy.clone_id is not None and self._is_bounding():
                    bound(self._folder / copy.clone_id, copy.size_bytes)
            return is_ours

    def _copy_alone(self, copy: DiskCopy, stop: Event) -> None:
        source, target, part = self._folder / copy.source_id, self._folder / copy.target_id, self._part(copy.target_id)
        if target.exists():
            try:
                target.rmdir()  # made by a process that knows no copies, or a copy of an empty disk
            except OSError as problem:
                if problem.errno != errno.ENOTEMPTY:
                    raise
                return  # complete, and then the process was killed
        _remove_tree(part)  # what a killed process left takes room
        self._require_room(source, copy.size_bytes)
        part.mkdir(mode=0o700)
        try:
            TreeCopy(copy.size_bytes, stop).make(source, part)
        except TreeRefusedError as refusal:
            _remove_tree(part)
            raise DiskRefusedError(str(refusal)) from refusal
        except OSError as problem:
            _remove_tree(part)
            if problem.errno not in _FULL:
                raise
            raise DiskRefusedError("The server's file system became full. Ask an administrator for room.") from problem
        part.rename(target)
        _make_durable(self._folder)

    def _require_room(self, source: Path, size_bytes: int) -> None:
        used, free = _size(source), self._free()
        if used > size_bytes:
            raise DiskRefusedError("There is more on the disk than its size. Make the disk larger, or remove files.")
        if used > free:
            raise DiskRefusedError(
                f"The server's file system has {free / _GIB:.1f} GiB left for disks, and {used / _GIB:.1f} GiB are to"
                " be copied. Ask an administrator for room."
            )

    def _free(self) -> int:
        """How much disks may take yet. Jobs, logs and the database have the rest: with none left, all of them stop."""
        usage = shutil.disk_usage(self._folder)
        return max(0, usage.free - min(_GIB, usage.total // _RESERVE))

    def _part(self, disk_id: str) -> Path:
        return self._folder / f"{_PART}{disk_id}"

    @contextmanager
    def _copying(self) -> Iterator[bool]:
        """Whether no other process copies; none does until this ends, and a killed one lets go."""
        lock = os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True
        finally:
            os.close(lock)

    def _used_bytes(self, disk_id: str) -> int | None:
        folder = self._folder / disk_id
        if not folder.exists():
            return None
        if self._is_bounding() and (quota := quota_of(folder)).limit:
            return quota.used
        return _size(folder)


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


def _remove_tree(root: Path) -> None:
    """Remove a folder. Folders within folders are moved up, so that none is too deep; links are not followed."""
    if not root.exists():
        return
    root.chmod(0o700)  # jobs make folders read-only, as caches of modules are
    top: int = os.open(root, _OPENED)
    try:
        while names := os.listdir(top):
            for name in names:
                if _is_folder(name, top):
                    _empty(name, top)
                    os.rmdir(name, dir_fd=top)
                else:
                    os.unlink(name, dir_fd=top)
    finally:
        os.close(top)
    root.rmdir()


def _empty(name: str, top: int) -> None:
    os.chmod(name, 0o700, dir_fd=top)
    folder: int = os.open(name, _OPENED, dir_fd=top)
    try:
        for inner in os.listdir(folder):
            if _is_folder(inner, folder):
                os.chmod(inner, 0o700, dir_fd=folder)  # it can't be moved otherwise
                os.rename(inner, secrets.token_hex(16), src_dir_fd=folder, dst_dir_fd=top)
            else:
                os.unlink(inner, dir_fd=folder)
    finally:
        os.close(folder)


def _is_folder(name: str, folder: int) -> bool:
    return stat.S_ISDIR(os.lstat(name, dir_fd=folder).st_mode)


def _make_durable(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _size(folder: Path) -> int:
    """What the files in a folder take of the file system, hard links once; files that vanish meanwhile are left out."""
    total, seen, folders = 0, set[tuple[int, int]](), [str(folder)]
    while folders:
        try:
            entries = os.listdir(path := folders.pop())  # noqa: PTH208 -- names are enough, and there may be many
        except OSError:  # it vanished, or its owner can't read it
            continue
        for name in entries:
            try:
                found = os.lstat(f"{path}/{name}")
            except OSError:
                continue
            if stat.S_ISDIR(found.st_mode):
                folders.append(f"{path}/{name}")
            elif found.st_nlink > 1:
                if (found.st_dev, found.st_ino) in seen:
                    continue
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

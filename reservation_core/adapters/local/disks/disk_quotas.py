"""Project quotas of ext4 and XFS: the kernel bounds what the files of a disk take together.

A disk's folder has a project id, files inherit it from the folder that they are made in, and the file system bounds
the blocks of all files of an id. The folder is the only place that knows the id. The limit is set last and lifted
first: files of a folder without a limit may not have the id yet, whenever a process was killed.

The kernel is asked by quotactl_fd (Linux 5.14) and two ioctls, which are the same for both file systems.
"""

import ctypes
import errno
import fcntl
import os
import secrets
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from reservation_core.adapters.local.disks.tree_copies import MOST_DEPTH

FIRST_PROJECT: Final = 2**30
"""Ids from here to twice as many are ours; administrators count from 1."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_SYS_QUOTACTL_FD = 443  # on all architectures
_PROJECT_QUOTAS = 2
_GET_STATE, _GET_QUOTA, _SET_QUOTA = 0x5805, 0x800007, 0x800008  # Q_XGETQSTAT, Q_GETQUOTA, Q_SETQUOTA
_STATE = struct.Struct("=bbH")  # the beginning of struct fs_quota_stat: version, flags of the answer, flags of quotas
_ENFORCED = 1 << 5  # FS_QUOTA_PDQ_ENFD
_LIMITS = struct.Struct("=8QI4x")  # struct if_dqblk
_BLOCK_LIMITS = 1
_UNIT = 1024  # of limits; what is taken is counted in bytes
_GET_TERMS, _SET_TERMS = 0x801C581F, 0x401C5820  # FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR
_TERMS = struct.Struct("=5I8x")  # struct fsxattr: flags, extent size, extents, project, size of extents that are copied
_INHERITED = 0x200  # FS_XFLAG_PROJINHERIT
_TRIES = 16
_LEFT_OUT = frozenset(
    {errno.EPERM, errno.EACCES, errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENOTTY, errno.EOPNOTSUPP}
)
"""Errors of files that this process may not change, that a job replaces meanwhile, or of another file system."""


@dataclass(frozen=True, slots=True)
class Quota:
    """What the files of a project may take, 0 where nothing bounds them; what they take, and how many there are."""

    limit: int
    used: int
    files: int


_NOTHING = Quota(0, 0, 0)


def why_unbounded(folder: Path) -> str | None:
    """Why no folder of this file system can be bounded by this process; None where it can."""
    with _opened(folder, os.O_RDONLY | os.O_DIRECTORY) as opened:  # an administrator may have it elsewhere, by a link
        try:
            flags = _STATE.unpack_from(_quotactl(opened, _GET_STATE, 0, b""))[2]
            if not flags & _ENFORCED:
                return "the file system is not mounted with prjquota"
            _quota(opened, 0)
            _terms(opened)
        except PermissionError:
            return "the server may not set quotas (CAP_SYS_ADMIN)"
        except OSError as problem:
            return f"the file system, or Linux before 5.14, has no project quotas ({problem.strerror})"
    return None


def bound(folder: Path, size_bytes: int) -> None:
    """Keep what is in a folder to so many bytes, also what is there already. Raises OSError."""
    with _opened(folder) as opened:
        project = _project(opened)
        if project is None or _quota(opened, project).limit == 0:
            project = project or _take_project(opened)
            _give_project(opened, project, 0)
        _set_limit(opened, project, size_bytes)


def quota_of(folder: Path) -> Quota:
    """What a folder may take, and what the files take that count. All is 0 where it has no project."""
    with _opened(folder) as opened:
        project = _project(opened)
        return _NOTHING if project is None else _quota(opened, project)


def lift(folder: Path) -> None:
    """Give back a folder's limit and project, so that its files can be moved and nothing is left when it goes."""
    with _opened(folder) as opened:
        project = _project(opened)
        if project is not None:
            _set_limit(opened, project, 0)
            _set_project(opened, 0, is_inherited=False)


def _project(opened: int) -> int | None:
    """The project of a folder, if it is one of ours."""
    project = _terms(opened)[3]
    return project if FIRST_PROJECT <= project < 2 * FIRST_PROJECT else None


def _take_project(folder: int) -> int:
    """Give a folder a project that no file has: another process may choose at the same moment."""
    for _ in range(_TRIES):
        project = FIRST_PROJECT + secrets.randbelow(FIRST_PROJECT)
        if _quota(folder, project) == _NOTHING:
            _set_project(folder, project, is_inherited=True)
            if _quota(folder, project).files == 1:
                return project
    raise OSError(f"no project id was free in {_TRIES} tries")


def _give_project(folder: int, project: int, depth: int) -> None:
    """Give a folder's files the project, the folder first: what is made meanwhile inherits it.

    Left out are files that are no regular ones, below MOST_DEPTH folders, and those of _LEFT_OUT.
    """
    _set_project(folder, project, is_inherited=True)
    for name in os.listdir(folder) if depth < MOST_DEPTH else ():
        try:
            mode = os.lstat(name, dir_fd=folder).st_mode
            if stat.S_ISDIR(mode):
                with _opened(name, _FOLDER, folder) as inner:
                    _give_project(inner, project, depth + 1)
            elif stat.S_ISREG(mode):
                with _opened(name, _FILE, folder) as file:
                    _set_project(file, project, is_inherited=False)
        except OSError as problem:
            if problem.errno not in _LEFT_OUT:
                raise


def _terms(opened: int) -> tuple[int, ...]:
    return _TERMS.unpack(fcntl.ioctl(opened, _GET_TERMS, bytes(_TERMS.size)))


def _set_project(opened: int, project: int, *, is_inherited: bool) -> None:
    flags, extent, extents, _, copied = _terms(opened)
    flags = flags | _INHERITED if is_inherited else flags & ~_INHERITED
    fcntl.ioctl(opened, _SET_TERMS, _TERMS.pack(flags, extent, extents, project, copied))


def _quota(opened: int, project: int) -> Quota:
    try:
        answer = _quotactl(opened, _GET_QUOTA, project, b"")
    except FileNotFoundError:  # XFS says this of a project that it does not know
        return _NOTHING
    limit, _, used, _, _, files, *_ = _LIMITS.unpack_from(answer)
    return Quota(limit * _UNIT, used, files)


def _set_limit(opened: int, project: int, size_bytes: int) -> None:
    limit = -(-size_bytes // _UNIT)
    _quotactl(opened, _SET_QUOTA, project, _LIMITS.pack(limit, 0, 0, 0, 0, 0, 0, 0, _BLOCK_LIMITS))


def _quotactl(opened: int, command: int, project: int, data: bytes) -> bytes:
    """Ask about project quotas of the file system of an open file. Raises OSError."""
    buffer = ctypes.create_string_buffer(data, 1024)
    number = command << 8 | _PROJECT_QUOTAS
    # Each argument as long as a register, so that the call has all of it.
    arguments = (_SYS_QUOTACTL_FD, opened, number, project)
    if ctypes.CDLL(None, use_errno=True).syscall(*map(ctypes.c_long, arguments), buffer) != 0:
        problem = ctypes.get_errno()
        raise OSError(problem, os.strerror(problem))
    return buffer.raw


@contextmanager
def _opened(path: Path | str, how: int = _FOLDER, folder: int | None = None) -> Iterator[int]:
    number = os.open(path, how, dir_fd=folder)
    try:
        yield number
    finally:
        os.close(number)

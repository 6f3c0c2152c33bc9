"""A folder copied as it is: links as links, hard links among its files, holes, permissions, times, attributes.

All is opened below folders that are open, and no link is followed: what a job puts there meanwhile leads nowhere else.
Sockets, pipes and devices are left out: they are not what is kept.
"""

import ctypes
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import Final

MOST_DEPTH: Final = 128
"""The most folders within each other; two are open of each."""

_CLONE = 0x40049409  # FICLONE: the file system lets both files have the same blocks
_PART = 2**23
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_NO_ENTRY = frozenset({errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.ENXIO})


class TreeRefusedError(Exception):
    """The folder can't be copied as it is; the text says why, and what to do."""


class CopyStoppedError(Exception):
    """The process ends: the copy is not complete."""


class TreeCopy:
    """One copy of a folder into an empty one, of at most `most_bytes`, until `stop` is set. It is durable once made."""

    def __init__(self, most_bytes: int, stop: Event) -> None:
        self._left = most_bytes
        self._stop = stop
        self._linked: dict[tuple[int, int], str] = {}
        self._root = -1

    def make(self, source: Path, target: Path) -> None:
        """Copy. Raises TreeRefusedError, CopyStoppedError and OSError."""
        with _open(os.open(source, _FOLDER)) as folder, _open(os.open(target, _FOLDER)) as into:
            self._root = into
            self._copy_folder(folder, into, "", 0)
            sync_file_system(into)

    def _copy_folder(self, folder: int, into: int, path: str, depth: int) -> None:
        if depth > MOST_DEPTH:
            raise TreeRefusedError(
                f"More than {MOST_DEPTH} folders are within each other: {_shown(path)}. Move them up."
            )
        for name in os.listdir(folder):
            if self._stop.is_set():
                raise CopyStoppedError
            self._copy_entry(folder, into, name, f"{path}{name}", depth)
        _copy_terms(folder, into)

    def _copy_entry(self, folder: int, into: int, name: str, path: str, depth: int) -> None:
        try:
            found = os.lstat(name, dir_fd=folder)
            if stat.S_ISLNK(found.st_mode):
                os.symlink(os.readlink(name, dir_fd=folder), name, dir_fd=into)
            elif stat.S_ISDIR(found.st_mode):
                with _open(os.open(name, _FOLDER, dir_fd=folder)) as inner:
                    os.mkdir(name, 0o700, dir_fd=into)
                    with _open(os.open(name, _FOLDER, dir_fd=into)) as made:
                        self._copy_folder(inner, made, f"{path}/", depth + 1)
            elif stat.S_ISREG(found.st_mode):
                with _open(os.open(name, _FILE, dir_fd=folder)) as file:
                    self._copy_file(file, into, name, path)
        except PermissionError as problem:
            raise TreeRefusedError(
                f"The server may not read {_shown(path)}. Make it readable for its owner in a session, and try again."
            ) from problem
        except OSError as problem:
            # It vanished or became a link meanwhile: jobs that only read are trusted to, and not kept from more.
            if problem.errno == errno.ENAMETOOLONG:
                raise TreeRefusedError(f"The path {_shown(path)} is too long. Move it up.") from problem
            if problem.errno not in _NO_ENTRY:
                raise

    def _copy_file(self, file: int, into: int, name: str, path: str) -> None:
        found = os.fstat(file)
        inode = (found.st_dev, found.st_ino)
        if (first := self._linked.get(inode)) is not None:
            os.link(first, name, src_dir_fd=self._root, dst_dir_fd=into, follow_symlinks=False)
            return
        with _open(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=into)) as made:
            if not _share_blocks(file, made):
                self._copy_data(file, made, found.st_size)
            _copy_terms(file, made)
        if found.st_nlink > 1:
            self._linked[inode] = path

    def _copy_data(self, file: int, made: int, size: int) -> None:
        for begin, end in _data(file, size):
            os.lseek(file, begin, os.SEEK_SET)
            os.lseek(made, begin, os.SEEK_SET)
            left = end - begin
            while left > 0 and (part := os.read(file, min(_PART, left))):
                if self._stop.is_set():
                    raise CopyStoppedError
                self._left -= len(part)
                if self._left < 0:
                    raise TreeRefusedError(
                        "There is more on the disk than its size. Make the disk larger, or remove files."
                    )
                left -= len(part)
                while part:
                    part = part[os.write(made, part) :]
        os.ftruncate(made, size)


def _shown(path: str) -> str:
    """The path as text: names of files are bytes."""
    return path[:200].encode("utf-8", "replace").decode()


def _data(file: int, size: int) -> Iterator[tuple[int, int]]:
    """Where a file has data and not holes, which take no room."""
    end = 0
    while end < size:
        try:
            begin = os.lseek(file, end, os.SEEK_DATA)
        except OSError as problem:
            if problem.errno == errno.ENXIO:  # a hole up to the end
                return
            raise
        end = min(os.lseek(file, begin, os.SEEK_HOLE), size)
        yield begin, end


def _share_blocks(file: int, made: int) -> bool:
    try:
        fcntl.ioctl(made, _CLONE, file)
    except OSError:
        return False
    return True


def sync_file_system(file: int) -> None:
    """Make all that was written to a file's system durable: once, as syncing many files one by one takes minutes."""
    if ctypes.CDLL(None, use_errno=True).syncfs(file) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _copy_terms(source: int, made: int) -> None:
    found = os.fstat(source)
    mode = stat.S_IMODE(found.st_mode)
    try:
        os.fchown(made, found.st_uid, found.st_gid)  # it takes some bits of the mode, and some attributes
    except OSError:  # only root gives files away, and only to users of its namespace
        mode &= ~(stat.S_ISUID | stat.S_ISGID)
    with suppress(OSError):  # the file system has none
        for name in os.listxattr(source):
            with suppress(OSError):  # such as the kernel keeps for itself
                os.setxattr(made, name, os.getxattr(source, name))
    os.fchmod(made, mode)
    os.utime(made, ns=(found.st_atime_ns, found.st_mtime_ns))


@contextmanager
def _open(number: int) -> Iterator[int]:
    try:
        yield number
    finally:
        os.close(number)

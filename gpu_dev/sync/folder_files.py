"""Reading files as entries of a folder, and writing entries as files.

Imports nothing but the standard library and what imports nothing else: jobs run it with any Python.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from reservation_core.domain.sync.folders import CHUNK_BYTES, EntryKind, FolderEntry

_PARTIAL = ".gpu-dev-partial"


class UnusableFileError(Exception):
    """A file that can't be sent; the text says why and names it."""


def read_entry(root: Path, path: str, found: os.stat_result) -> FolderEntry:
    """The entry of a file, a link or a folder, with the digests of its chunks. Raises UnusableFileError and OSError."""
    match stat.S_IFMT(found.st_mode):
        case stat.S_IFREG:
            chunks = tuple(sha256(chunk).hexdigest() for chunk in read_chunks(root / path, found.st_size))
            executable = bool(found.st_mode & stat.S_IXUSR)
            return FolderEntry(path, EntryKind.FILE, found.st_size, executable, chunks)
        case stat.S_IFLNK:
            return FolderEntry(path, EntryKind.LINK, target=os.readlink(root / path))  # noqa: PTH115
        case stat.S_IFDIR:
            return FolderEntry(path, EntryKind.FOLDER)
        case _:
            raise UnusableFileError(f"{path} is a device, a pipe or a socket")


def read_chunks(file: Path, size: int) -> Iterator[bytes]:
    """The chunks of a file that has `size` bytes. Raises UnusableFileError where it has fewer or more by now.

    What has taken the file's place is not followed and not waited for.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    with os.fdopen(os.open(file, flags), "rb", buffering=0) as opened:
        left = size
        while left:
            chunk = b""
            while len(chunk) < min(CHUNK_BYTES, left) and (part := opened.read(min(CHUNK_BYTES, left) - len(chunk))):
                chunk = chunk + part if chunk else part
            if len(chunk) < min(CHUNK_BYTES, left):
                raise UnusableFileError(f"{file} changed while it was read")
            left -= len(chunk)
            yield chunk
        if opened.read(1):
            raise UnusableFileError(f"{file} changed while it was read")


def write_entries(root: Path, entries: Sequence[FolderEntry], data: Iterable[tuple[bytes, bytes]]) -> None:
    """Write entries, which were checked, below a folder. `data` are their different chunks, in the order of entries.

    Files and links in the way are replaced and never followed: a link in the place of a folder is removed. A folder
    that has something in it is never removed: OSError.
    """
    frames = iter(data)
    places: dict[str, tuple[Path, int]] = {}
    for entry in entries:
        path = root / entry.path
        _make_room(root, entry.path)
        match entry.kind:
            case EntryKind.FOLDER:
                _make_folder(path)
            case EntryKind.LINK:
                _remove(path)
                path.symlink_to(entry.target)
            case EntryKind.FILE:
                _write_file(path, entry, frames, places)


def _write_file(
    path: Path, entry: FolderEntry, frames: Iterator[tuple[bytes, bytes]], places: dict[str, tuple[Path, int]]
) -> None:
    partial = path.with_name(f"{_PARTIAL}-{os.getpid()}")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with suppress(FileNotFoundError):
        partial.unlink()
    try:
        with os.fdopen(os.open(partial, flags, 0o777 if entry.executable else 0o666), "w+b", buffering=0) as file:
            for place, digest in enumerate(entry.chunks):
                chunk = _chunk(digest, frames, places, file.fileno())
                written = 0
                while written < len(chunk):
                    written += file.write(chunk[written:]) or 0
                places.setdefault(digest, (path, place * CHUNK_BYTES))
        if path.is_dir() and not path.is_symlink():
            _remove(path)
        partial.replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            partial.unlink()
        raise


def _chunk(
    digest: str, frames: Iterator[tuple[bytes, bytes]], places: Mapping[str, tuple[Path, int]], own: int
) -> bytes:
    """A chunk: the next one that comes, or one that was written already."""
    if digest not in places:
        came, chunk = next(frames, (b"", b""))
        if came.hex() != digest:
            raise UnusableFileError("The files came in another order than their list says")
        return chunk
    path, offset = places[digest]
    if path.is_symlink() or not path.exists():  # earlier in this very file, which has not got its name yet
        chunk = os.pread(own, CHUNK_BYTES, offset)
    else:
        with path.open("rb", buffering=0) as file:
            file.seek(offset)
            chunk = file.read(CHUNK_BYTES)
    if sha256(chunk).hexdigest() != digest:
        raise UnusableFileError(f"{path} changed while it was written")
    return chunk


def _make_room(root: Path, path: str) -> None:
    parts = path.split("/")[:-1]
    for count in range(1, len(parts) + 1):
        _make_folder(root / "/".join(parts[:count]))


def _make_folder(path: Path) -> None:
    try:
        if stat.S_ISDIR(path.lstat().st_mode):
            return
        path.unlink()
    except FileNotFoundError:
        pass  # nothing is in the way
    path.mkdir()


def _remove(path: Path) -> None:
    """Remove what is there, but no folder that has something in it: OSError."""
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        with suppress(FileNotFoundError):
            path.unlink()

"""The content of a folder of this machine. Files that did not change since the last look are not read again."""

import os
import stat
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import msgspec

from gpu_dev.errors import UsageError
from gpu_dev.sync.folder_files import UnusableFileError, read_entry
from gpu_dev.sync.ignoring import IGNORE_FILE, IgnoreRules
from reservation_core.domain.sync.folders import MOST_ENTRIES, EntryKind, FolderEntry, fault_of_entries

_READERS = 4
_CLOCK_STEP_NS = 100_000_000
"""A file that changed so shortly before the last look may have changed after it, too."""
_KEPT_CACHES = 50

Known = dict[str, tuple[list[int], list[str]]]


class ScanCache(msgspec.Struct):
    """The last look at a folder: when it began, and of each file its size, times and inode, and its chunks."""

    began: int = 0
    files: Known = {}


def scan(root: Path, cache_folder: Path | None) -> list[FolderEntry]:
    """All entries of a folder but those that are ignored. Raises UsageError for what can't be sent."""
    cache_file = _cache_file(root, cache_folder)
    known = _read_cache(cache_file)
    looked = ScanCache(began=time.time_ns())
    try:
        found = list(_walk(root))
        if len(found) > MOST_ENTRIES:
            raise UsageError(
                f"{root} has more than {MOST_ENTRIES} files and folders. Leave some out with {IGNORE_FILE}."
            )
        entries = _entries(root, found, known)
    except OSError as error:
        raise UsageError(f"{error.filename or root} can't be read: {error.strerror}.") from error
    except UnusableFileError as error:
        raise UsageError(f"{error}. Leave it out with {IGNORE_FILE}, or try again.") from error
    if (fault := fault_of_entries(entries)) is not None:
        raise UsageError(f"{root} can't be sent: {fault}. Leave it out with {IGNORE_FILE}.")
    looked.files = {
        path: (_mark(status), list(entry.chunks))
        for (path, status), entry in zip(found, entries, strict=True)
        if entry.kind is EntryKind.FILE
    }
    _write_cache(cache_file, looked)
    return entries


def chunks_of_last_look(root: Path, cache_folder: Path) -> frozenset[str]:
    """The chunks that a folder had at the last look; none where there was none."""
    return frozenset(
        chunk for _, chunks in _read_cache(_cache_file(root, cache_folder)).files.values() for chunk in chunks
    )


def _cache_file(root: Path, cache_folder: Path | None) -> Path | None:
    return None if cache_folder is None else cache_folder / f"{sha256(os.fsencode(root)).hexdigest()[:32]}.json"


def _walk(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    waiting = [("", IgnoreRules(""))]
    while waiting:
        path, rules = waiting.pop()
        with os.scandir(root / path) as listing:
            names = sorted(listing, key=lambda one: one.name)
        rules = rules.below(root / path, path, has_file=any(one.name == IGNORE_FILE and one.is_file() for one in names))
        for one in names:
            is_folder = one.is_dir(follow_symlinks=False)
            if rules.leaves_out(one.name, is_folder=is_folder):
                continue
            yield path + one.name, one.stat(follow_symlinks=False)
            if is_folder:
                waiting.append((f"{path}{one.name}/", rules))


def _entries(root: Path, found: Sequence[tuple[str, os.stat_result]], known: ScanCache) -> list[FolderEntry]:
    """The entries of what was found; files that have to be read are read several at once."""
    entries = [_known_entry(path, status, known) for path, status in found]
    unknown = [place for place, entry in enumerate(entries) if entry is None]
    with ThreadPoolExecutor(_READERS) as readers:
        read = readers.map(lambda place: read_entry(root, *found[place]), unknown)
        new = dict(zip(unknown, read, strict=True))
    return [entry or new[place] for place, entry in enumerate(entries)]


def _known_entry(path: str, found: os.stat_result, known: ScanCache) -> FolderEntry | None:
    """The entry of a file that did not change since the last look."""
    mark, chunks = known.files.get(path, ([], []))
    is_file = stat.S_ISREG(found.st_mode)
    if is_file and mark == _mark(found) and max(found.st_mtime_ns, found.st_ctime_ns) < known.began - _CLOCK_STEP_NS:
        executable = bool(found.st_mode & stat.S_IXUSR)
        return FolderEntry(path, EntryKind.FILE, found.st_size, executable, tuple(chunks))
    return None


def _mark(found: os.stat_result) -> list[int]:
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]


def _read_cache(file: Path | None) -> ScanCache:
    """The last look; none where the file is missing or is not what was written."""
    try:
        return ScanCache() if file is None else msgspec.json.decode(file.read_bytes(), type=ScanCache)
    except (OSError, msgspec.MsgspecError, UnicodeError):
        return ScanCache()


def _write_cache(file: Path | None, looked: ScanCache) -> None:
    """Keep a look for the next time. Where it can't be kept, the next time reads all files."""
    if file is None:
        return
    partial = file.with_suffix(f".{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        partial.write_bytes(msgspec.json.encode(looked))
        partial.replace(file)
        caches = sorted(file.parent.glob("*.json"), key=lambda one: one.stat().st_mtime, reverse=True)
        for old in caches[_KEPT_CACHES:]:
            old.unlink()
    except OSError:
        partial.unlink(missing_ok=True)

"""Send a folder to the server, and bring back what a job has kept."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpu_dev.calls.file_calls import FileCalls
from gpu_dev.errors import ClientError, UsageError
from gpu_dev.sync.folder_files import UnusableFileError, read_chunks, write_entries
from gpu_dev.sync.scanning import chunks_of_last_look, scan
from gpu_dev.terminal import say
from reservation_core.domain.sync.folders import FolderEntry, chunk_sizes, content_bytes, entry_of, fault_of_entries
from reservation_core.domain.sync.frames import PACK_BYTES, packs
from reservation_core.domain.sync.job_sync import HERE, fault_of_kept

_TRIES = 3
_MIB = 2**20


def send_folder(calls: FileCalls, root: Path) -> str:
    """Send what the server does not have of a folder; returns the folder's id. Raises UsageError and ClientError.

    After a break only the chunks are sent that the server lacks.
    """
    before = chunks_of_last_look(root, cache_folder())
    entries = scan(root, cache_folder())
    fresh = {digest: size for digest, size in chunk_sizes(entries) if digest not in before}
    if before and 0 < sum(fresh.values()) <= PACK_BYTES:
        # A few changes since the last time: the server would say that it lacks them.
        _send_chunks(calls, root, entries, list(fresh))
    answer = calls.put_folder(entries)
    for _ in range(_TRIES):
        if answer.id is not None:
            return answer.id
        _send_chunks(calls, root, entries, answer.missing)
        answer = calls.put_folder(entries)
    if answer.id is None:
        raise UsageError(f"Files in {root} change while they are sent. Try again when nothing writes there.")
    return answer.id


def bring_results(calls: FileCalls, job_id: str, into: Path) -> int:
    """Write what a job has kept into a folder; returns the number of files. Raises ClientError and UsageError."""
    found = calls.results(job_id)
    entries = [entry_of(one) for one in found.entries]
    if (fault := fault_of_entries(entries) or fault_of_kept([HERE], entries)) is not None:
        raise UsageError(f"What {job_id} has kept is not written here: {fault}.")
    try:
        into.mkdir(parents=True, exist_ok=True)
        write_entries(into, entries, calls.results_data(job_id, found.chunks))
    except OSError as error:
        raise UsageError(
            f"{error.filename or into} can't be written: {error.strerror}.",
            next_command=f"gpu-dev fetch {job_id} --to DIR",
        ) from error
    except UnusableFileError as error:
        raise ClientError(f"{error}.", next_command=f"gpu-dev fetch {job_id}") from error
    return len(entries)


def brought(count: int, job_id: str, into: Path | str) -> str:
    """A sentence on the files that were written."""
    if not count:
        return f"{job_id} has kept no files; its log says why."
    return f"{count} {'file or folder' if count == 1 else 'files and folders'} of {job_id} written to {into}"


def cache_folder() -> Path:
    """Where looks at folders are kept."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "gpu-dev" / "sync"


def _send_chunks(calls: FileCalls, root: Path, entries: Sequence[FolderEntry], missing: Sequence[str]) -> None:
    wanted = set(missing)
    total = sum(size for digest, size in dict(chunk_sizes(entries)).items() if digest in wanted)
    what = "1 file or folder" if len(entries) == 1 else f"{len(entries)} files and folders"
    say(f"Sending {_size(total)} of {_size(content_bytes(entries))} in {what} …")
    try:
        for pack in packs(_data(root, entries, wanted)):
            calls.put_chunks(pack)
    except OSError as error:
        raise UsageError(f"{error.filename or root} can't be read: {error.strerror}.") from error
    except UnusableFileError as error:
        raise UsageError(f"{error}. Try again when nothing writes there.") from error


def _data(root: Path, entries: Sequence[FolderEntry], wanted: set[str]) -> Iterator[tuple[bytes, bytes]]:
    for entry in entries:
        if wanted.isdisjoint(entry.chunks):
            continue
        chunks = read_chunks(root / entry.path, entry.size)
        for digest, chunk in zip(entry.chunks, chunks, strict=True):
            if digest in wanted:
                wanted.discard(digest)
                yield bytes.fromhex(digest), chunk


def _size(count: int) -> str:
    return f"{count / _MIB:.1f} MiB" if count >= _MIB else f"{count} bytes"

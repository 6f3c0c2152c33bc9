"""Copy files and folders into a job and back: tar streams through programs there, which need only `sh` and `tar`."""

import os
import posixpath
import shlex
import tarfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from gpu_dev.calls.session_calls import SessionCalls
from gpu_dev.errors import ClientError, NoSuchObjectError, UsageError
from gpu_dev.sessions.conversation import Ends, converse
from gpu_dev.sessions.descriptors import run_polling
from gpu_dev.sessions.files.archives import pack, unpack
from gpu_dev.terminal import say

_LOOK = """
command -v tar >/dev/null 2>&1 || { echo no-tar; exit; }
if [ -d "$1" ]; then echo folder; cd -- "$1" && pwd; elif [ -e "$1" ]; then echo file; else echo none; fi
"""
_CANNOT_RUN = (126, 127)


class _Kind(StrEnum):
    FOLDER = "folder"
    FILE = "file"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class _Found:
    """A path in a job and its kind; a folder's path is whole."""

    kind: _Kind
    path: str


class _Job:
    """A job that files are copied from or to."""

    def __init__(self, calls: SessionCalls, job_id: str, rank: int) -> None:
        self.id = job_id
        self._calls = calls
        self._rank = rank

    def run(self, command: Sequence[str], ends: Ends) -> int:
        """Run a program there, and return its exit code. Raises what `converse` raises."""
        return run_polling(self._converse(command, ends))

    async def _converse(self, command: Sequence[str], ends: Ends) -> int:
        return await converse(await self._calls.start(self.id, command, rank=self._rank), ends)

    def look(self, path: str) -> _Found:
        """Raises ClientError where the job's image has not what copying needs."""
        reader, writer = os.pipe()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            code = self.run(["sh", "-c", _LOOK, "sh", path], Ends(None, writer, nowhere))
        finally:
            os.close(writer)
            os.close(nowhere)
        with os.fdopen(reader, encoding="utf-8", errors="surrogateescape") as answer:
            lines = answer.read().splitlines()
        if code in _CANNOT_RUN or not lines:
            raise _missing("sh")
        if lines[0] == "no-tar":
            raise _missing("tar")
        kind = _Kind(lines[0])
        return _Found(kind, lines[1] if kind is _Kind.FOLDER else path)


def copy_in(calls: SessionCalls, job_id: str, source: Path, path: str, *, rank: int = 0) -> int:
    """Copy a file or folder of this machine to a path in a job; into it where that is a folder. Returns 0.

    Raises ClientError.
    """
    job = _Job(calls, job_id, rank)
    if not source.exists():
        raise NoSuchObjectError(f"There is no file or folder {source} on this machine.")
    folder, name = _place(job, path, source)
    reader, writer = os.pipe()
    with ThreadPoolExecutor(1) as beside:
        packing = beside.submit(_pack, source, name, writer)
        try:
            code = job.run(["tar", "-xpof", "-", "-C", folder], Ends(stdin=reader))
        finally:
            os.close(reader)
    failure = packing.exception()
    if failure is not None and not isinstance(failure, BrokenPipeError):
        raise ClientError(f"{_place_of(failure, source)} can't be copied: {_cause_of(failure)}.") from failure
    return _checked(code)


def copy_out(calls: SessionCalls, job_id: str, path: str, target: Path, *, rank: int = 0) -> int:
    """Copy a file or folder of a job to this machine; into the target where that is a folder. Returns 0.

    Raises ClientError.
    """
    job = _Job(calls, job_id, rank)
    found = job.look(path.rstrip("/") or "/")
    if found.kind is _Kind.NONE:
        raise NoSuchObjectError(f"There is no file or folder {path} in {job_id}.")
    parent, name = posixpath.split(found.path)
    if not name:
        raise UsageError("The root folder of a job can't be copied. Name a folder in it.")
    place = target / name if target.is_dir() else target
    if not place.parent.is_dir():
        raise NoSuchObjectError(f"There is no folder {place.parent} on this machine.")
    followed = "-chf" if found.kind is _Kind.FILE else "-cf"
    reader, writer = os.pipe()
    with ThreadPoolExecutor(1) as beside:
        unpacking = beside.submit(_unpack, reader, name, place.absolute())
        try:
            code = job.run(["tar", followed, "-", "-C", parent or ".", f"./{name}"], Ends(None, writer))
        except BrokenPipeError:
            code = 0  # the other end says what was wrong
        finally:
            os.close(writer)
    failure = unpacking.exception()
    if failure is not None and code == 0:
        raise ClientError(f"{_place_of(failure, place)} can't be written: {_cause_of(failure)}.") from failure
    return _checked(code)


def _place(job: _Job, path: str, source: Path) -> tuple[str, str]:
    """The folder in the job to unpack in, and the name there."""
    found = job.look(path.rstrip("/") or "/")
    if found.kind is _Kind.FOLDER:
        return found.path, source.resolve().name
    parent, name = posixpath.split(path.rstrip("/"))
    if found.kind is _Kind.FILE and source.is_dir():
        raise UsageError(f"{path} is a file in the job, and {source} is a folder.")
    if path.endswith("/") or job.look(parent or ".").kind is not _Kind.FOLDER:
        missing = path if path.endswith("/") else parent
        raise NoSuchObjectError(
            f"There is no folder {missing} in the job.",
            next_command=f"gpu-dev exec {job.id} -- mkdir -p {shlex.quote(missing)}",
        )
    return parent or ".", name


def _pack(source: Path, name: str, writer: int) -> None:
    with os.fdopen(writer, "wb") as stream:
        pack(source, name, stream, _say_skipped)


def _unpack(reader: int, name: str, place: Path) -> None:
    with os.fdopen(reader, "rb") as stream:
        try:
            unpack(stream, name, place, _say_skipped)
        except tarfile.ReadError as error:
            raise ClientError("what came from the job is not whole") from error


def _place_of(failure: BaseException, usual: Path) -> str:
    """The file that a failure is about."""
    return str(getattr(failure, "filename", None) or usual)


def _cause_of(failure: BaseException) -> str:
    """The reason of a failure in words, without the number and the path that Python puts beside it."""
    if isinstance(failure, OSError) and failure.errno is not None:
        return os.strerror(failure.errno)
    return str(failure)


def _say_skipped(path: str) -> None:
    say(f"{path} is skipped: only files, folders and links are copied.")


def _checked(code: int) -> int:
    if code in _CANNOT_RUN:
        raise _missing("tar")
    if code:
        raise ClientError(f"Not everything was copied: tar in the job ended with {code}. Its messages say why.")
    return code


def _missing(program: str) -> ClientError:
    return ClientError(f"Copying needs `sh` and `tar` in the job's image, and there is no `{program}` in it.")

"""Run a job's command in the folder that its owner has sent, and keep files of it when the command has ended.

Run as `python -I -S inside.py COMMAND…` in the folder, with the variables of a job. It needs nothing but the standard
library. It gets the files, runs the command with its own standard streams and passes signals on, sends the files that
are kept, and ends with the command's exit code. Without a command, as for a session, it waits for a signal to end.

In a container it is the first process: it has no parent, and gets the signals that are meant for the command.
"""

import json
import os
import signal
import ssl
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, HTTPSHandler, ProxyHandler, Request, build_opener

sys.path.append(os.path.abspath(__file__ + "/../../.."))  # noqa: PTH100 - `-I -S` leaves the standard library alone there

from gpu_dev.sync.folder_files import UnusableFileError, read_chunks, read_entry, write_entries
from reservation_core.domain.sync.folders import (
    MOST_ENTRIES,
    FolderEntry,
    entry_of,
    fault_of_entries,
    fault_of_entry,
    fields_of,
    is_of_git,
    stand_together,
)
from reservation_core.domain.sync.frames import FrameError, packs, read_frames
from reservation_core.domain.sync.job_sync import FOLDER_VARIABLE, HERE

_JSON = "application/json"
_BYTES = "application/octet-stream"
_SILENCE_S = 60
_PATIENCE_S = 90
_PAUSES_S = (0.2, 0.5, 1, 2, 4, 8, 8, 15, 15, 30)
AUTHORITIES = "authorities.pem"
"""The certificates of authorities that were carried with this program; images often have none."""

_FIRST = 1
_ENDING_S = 1
_LOOK_S = 0.02
_NOT_STARTED = 126
_NOT_FOUND = 127
_SIGNALLED = 128
_REDIRECTS = range(300, 400)
_CLIENT_ERRORS = range(400, 500)
_LATER = (429,)
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_PASSED_ON = frozenset({
    signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGALRM, signal.SIGCONT, signal.SIGUSR1,
    signal.SIGUSR2,
})  # fmt: skip


class NoFilesError(Exception):
    """The files can't be had or kept; the text says why."""


class _Patience:
    """The pauses between tries, and the time after which there are no more, however long a server is silent."""

    def __init__(self) -> None:
        self._until = time.monotonic() + _PATIENCE_S
        self._pauses = iter(_PAUSES_S)

    def silence(self) -> float:
        """How long a try may hear nothing."""
        return max(0.1, min(_SILENCE_S, self._until - time.monotonic()))

    def pause(self) -> bool:
        """Wait for the next try; False if there is none."""
        pause = next(self._pauses, None)
        if pause is None or time.monotonic() + pause >= self._until:
            return False
        time.sleep(pause)
        return True


class _NoRedirects(HTTPRedirectHandler):
    """Takes the token nowhere else."""

    def redirect_request(self, *_words: Any) -> None:
        """Nowhere."""


class JobServer:
    """The server's calls for this job, repeated while it does not answer."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        try:
            self._base = environ["GPU_DEV_JOB_SERVER"].rstrip("/")
            self._token = environ["GPU_DEV_JOB_TOKEN"]
            self.job = environ["GPU_DEV_JOB_ID"]
        except KeyError as error:
            raise NoFilesError(
                "this server gives jobs no address of it; an administrator sets GPU_DEV_JOB_SERVER"
            ) from error
        secure = [HTTPSHandler(context=_trusted_authorities())] if self._base.startswith("https:") else []
        # The image's variables may name a proxy, which would get the token and can seldom reach the server.
        self._opener = build_opener(ProxyHandler({}), _NoRedirects(), *secure)

    def call(self, method: str, path: str, body: bytes | None = None, kind: str = _JSON) -> Any:
        """The JSON of an answer; repeated where it breaks off."""
        patience = _Patience()
        while True:
            try:
                with self._open(patience, method, path, body, kind) as answer:
                    return json.load(answer)
            except (HTTPException, OSError, ValueError) as error:
                if not patience.pause():
                    raise NoFilesError(f"the server's answers break off again and again ({error})") from error

    def put(self, path: str, fields: Any) -> Any:
        """Send JSON."""
        return self.call("PUT", path, json.dumps(fields, ensure_ascii=False).encode())

    def chunks(self, path: str, count: int) -> Iterator[tuple[bytes, bytes]]:
        """The chunks of a folder; a broken connection is made again where it broke."""
        done = 0
        patience = _Patience()
        while done < count:
            try:
                with self._open(patience, "GET", f"{path}?skip={done}") as answer:
                    for frame in read_frames(answer.read):
                        yield frame
                        done, patience = done + 1, _Patience()
            except (FrameError, HTTPException, OSError):
                pass  # it goes on below from the last whole chunk
            if done < count and not patience.pause():
                raise NoFilesError("the connection to the server breaks off again and again")

    def _open(
        self, patience: _Patience, method: str, path: str, body: bytes | None = None, kind: str = _JSON
    ) -> IO[bytes]:
        headers = {"Authorization": f"Bearer {self._token}", "User-Agent": "gpu-dev-job"}
        if body is not None:
            headers["Content-Type"] = kind
        while True:
            request = Request(self._base + path, body, headers, method=method)  # noqa: S310 - the server's own address
            try:
                opened: IO[bytes] = self._opener.open(request, timeout=patience.silence())
            except HTTPError as error:
                with error:
                    why = _detail(error)
                if error.code in (*_REDIRECTS, *_CLIENT_ERRORS) and error.code not in _LATER:
                    raise NoFilesError(why) from error
            except (HTTPException, OSError) as error:
                why = f"the server does not answer ({error})"
            else:
                return opened
            if not patience.pause():
                raise NoFilesError(why)


def _trusted_authorities() -> ssl.SSLContext:
    context = ssl.create_default_context()
    carried = Path(__file__).parents[2] / AUTHORITIES
    if carried.is_file():
        context.load_verify_locations(carried)
    return context


def _detail(error: HTTPError) -> str:
    if error.code in _REDIRECTS:
        return (
            f"the server answered {error.code} and another address, {str(error.headers['Location'])[:200]!r}; an "
            "administrator sets GPU_DEV_JOB_SERVER to the API's own"
        )
    try:
        return str(json.load(error)["detail"])
    except (ValueError, KeyError, TypeError, OSError, HTTPException):
        return f"the server answered {error.code}"


class Brought(NamedTuple):
    """What a job began with and what it keeps."""

    has_folder: bool
    paths: Sequence[str]
    most_bytes: int | None
    """The most bytes that are kept; None where an older server does not say it."""


def bring_files(server: JobServer, folder: Path) -> Brought:
    """Write the job's files into a folder."""
    found = server.call("GET", f"/v1/jobs/{server.job}/files")
    entries = [entry_of(one) for one in found["entries"]]
    if (fault := fault_of_entries(entries)) is not None:
        raise NoFilesError(fault)
    write_entries(folder, entries, server.chunks(f"/v1/jobs/{server.job}/files/data", found["chunks"]))
    return Brought(found.get("id") is not None, list(map(str, found["fetch"])), found.get("most_bytes"))


def keep_files(server: JobServer, folder: Path, paths: Sequence[str], most_bytes: int | None = None) -> None:
    """Send what is at these paths of a folder as the job's results. What can't be kept is said and left out."""
    entries, faults = stand_together(_entries(folder, paths, most_bytes))
    for fault in faults:
        _say(f"not kept: {fault}")
    answer: Any = {"id": None, "missing": []}
    for _ in range(3):
        answer = server.put("/v1/uploads/folders", {"entries": [fields_of(entry) for entry in entries]})
        if answer["id"] is not None:
            break
        changed: set[str] = set()
        for pack in packs(_data(folder, entries, set(answer["missing"]), changed)):
            server.call("PUT", "/v1/uploads", pack, _BYTES)
        entries = [entry for entry in entries if entry.path not in changed]
    if answer["id"] is None:
        raise NoFilesError("files changed while they were sent")
    server.put(f"/v1/jobs/{server.job}/results", {"folder": answer["id"]})


def _entries(folder: Path, paths: Sequence[str], most_bytes: int | None) -> list[FolderEntry]:
    """The entries at and below these paths. A file that is too large is never read."""
    entries: dict[str, FolderEntry] = {}
    size = 0
    for place in (place for path in paths for place in _places(folder, path)):
        name = str(place.relative_to(folder))
        if name in entries:
            continue
        if len(entries) == MOST_ENTRIES:
            _say(f"not kept: {name} and what follows, as there are {MOST_ENTRIES} files and folders before it")
            break
        try:
            found = place.lstat()
            if stat.S_ISREG(found.st_mode):
                _check_size(name, found.st_size, size, most_bytes)
            entry = read_entry(folder, name, found)
            fault = fault_of_entry(entry)
        except FileNotFoundError:
            continue
        except (UnusableFileError, OSError) as error:
            fault = str(error)
        if fault is not None:
            _say(f"not kept: {fault}")
        else:
            entries[name] = entry
            size += entry.size
    return list(entries.values())


def _check_size(name: str, size: int, before: int, most_bytes: int | None) -> None:
    if most_bytes is not None and before + size > most_bytes:
        raise UnusableFileError(
            f"{name} has {size} bytes; a job may keep {most_bytes} in all, and the files before it have {before}"
        )


def _places(folder: Path, path: str) -> Iterator[Path]:
    """All that is at and below a path, which may be no folder, but for what is of Git."""
    places = [folder if path == HERE else folder / path]
    if path != HERE and not os.path.lexists(places[0]):
        _say(f"{path} is not there, so it is not kept")
        return
    while places:
        place = places.pop()
        if is_of_git(name := str(place.relative_to(folder))):
            _say(f"not kept: {name} is of Git")
            continue
        if place != folder:
            yield place
        try:
            if place.is_dir() and not place.is_symlink():
                places += sorted(place.iterdir(), reverse=True)
        except FileNotFoundError:
            continue
        except OSError as error:
            _say(f"not kept: {error}")


def _data(
    folder: Path, entries: Sequence[FolderEntry], missing: set[str], changed: set[str]
) -> Iterator[tuple[bytes, bytes]]:
    """The missing chunks. Files that have changed since they were read are said and noted: they have others now."""
    for entry in entries:
        if missing.isdisjoint(entry.chunks):
            continue
        try:
            for digest, chunk in zip(entry.chunks, read_chunks(folder / entry.path, entry.size), strict=True):
                if digest in missing:
                    _check_digest(entry, digest, chunk)
                    missing.discard(digest)
                    yield bytes.fromhex(digest), chunk
        except (UnusableFileError, OSError) as error:
            _say(f"not kept: {error}")
            changed.add(entry.path)


def _check_digest(entry: FolderEntry, digest: str, chunk: bytes) -> None:
    if sha256(chunk).hexdigest() != digest:
        raise UnusableFileError(f"{entry.path} changed while it was sent")


def run_command(command: Sequence[str], environ: Mapping[str, str], *, has_folder: bool = True) -> int:
    """Run the command, pass signals on, and return its exit code, 128 and the number for a signal.

    What a parent sends, it sends to the whole group, and so to the command, too: that is not passed on once more.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*_PASSED_ON, signal.SIGCHLD})
    if not command:
        if has_folder:
            _say("The folder is complete.")
        while signal.sigwait({*_PASSED_ON, signal.SIGCHLD}) not in _ENDING:
            _reap(None)
        return 0
    try:
        child = subprocess.Popen(
            command,
            env=environ,
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before),  # noqa: PLW1509 - no threads
        )
    except FileNotFoundError:
        _say(f"The command {command[0]} was not found. Correct the job and submit it again.")
        return _NOT_FOUND
    except OSError as error:
        _say(f"The command {command[0]} could not be started: {error.strerror}. Correct the job and submit it again.")
        return _NOT_STARTED
    while (code := _reap(child)) is None:
        came = signal.sigwaitinfo({*_PASSED_ON, signal.SIGCHLD})
        if came.si_signo != signal.SIGCHLD and (os.getpid() == _FIRST or came.si_pid != os.getppid()):
            child.send_signal(came.si_signo)
    return code if code >= 0 else _SIGNALLED - code


def _reap(child: "subprocess.Popen[bytes] | None") -> int | None:
    """Reap all ended children, as the first process of a container has to; the exit code of `child` once it ended."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return None if child is None else child.poll()
        if pid == 0:
            return None
        if child is not None and pid == child.pid:
            child.returncode = os.waitstatus_to_exitcode(status)
            return child.returncode


def end_the_rest(*, gently: bool) -> None:
    """End what is left in a container, of which this is the first process: it would write on, and use the GPUs.

    It would have ended with the command, were that the first process. Shells of a session may end by themselves.
    """
    for number in (signal.SIGTERM, signal.SIGKILL) if gently else (signal.SIGKILL,):
        until = time.monotonic() + _ENDING_S
        with suppress(ProcessLookupError, PermissionError):
            os.kill(-1, number)
            while time.monotonic() < until:
                signal.sigtimedwait({signal.SIGCHLD}, _LOOK_S)  # of those that came from outside, none comes
                _reap(None)
                os.kill(-1, 0)


def _say(text: str) -> None:
    print(f"gpu-dev: {text}", file=sys.stderr, flush=True)


def main() -> int:
    """Run from the first file to the last."""
    folder = Path.cwd()
    if os.getpid() == _FIRST:  # which a signal without a handler does not end
        for number in _ENDING:
            signal.signal(number, lambda number, _frame: sys.exit(_SIGNALLED + number))
    try:
        server = JobServer(os.environ)
        brought = bring_files(server, folder)
    except (NoFilesError, UnusableFileError, OSError) as error:
        _say(f"The job's files did not come: {error}. Submit the job again.")
        return _NOT_STARTED
    command = sys.argv[1:]
    code = run_command(command, {**os.environ, FOLDER_VARIABLE: str(folder)}, has_folder=brought.has_folder)
    if brought.paths and os.environ.get("NODE_RANK", "0") == "0":
        if os.getpid() == _FIRST:
            end_the_rest(gently=not command)
        try:
            keep_files(server, folder, brought.paths, brought.most_bytes)
        except (NoFilesError, UnusableFileError, OSError) as error:
            _say(f"Files were not kept: {error}.")
            return code or 1
    return code


if __name__ == "__main__":
    sys.exit(main())

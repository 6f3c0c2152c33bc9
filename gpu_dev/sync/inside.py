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
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

sys.path.append(os.path.abspath(__file__ + "/../../.."))  # noqa: PTH100 - `-I -S` leaves the standard library alone there

from gpu_dev.sync.folder_files import UnusableFileError, read_chunks, read_entry, write_entries
from reservation_core.domain.sync.folders import (
    FolderEntry,
    chunk_sizes,
    entry_of,
    fault_of_entries,
    fault_of_entry,
    fields_of,
    is_of_git,
)
from reservation_core.domain.sync.frames import FrameError, packs, read_frames
from reservation_core.domain.sync.job_sync import FOLDER_VARIABLE, HERE

_JSON = "application/json"
_BYTES = "application/octet-stream"
_SILENCE_S = 60
_PAUSES_S = (0.2, 0.5, 1, 2, 4, 8, 8, 15, 15, 30)
AUTHORITIES = "authorities.pem"
"""The certificates of authorities that were carried with this program; images often have none."""

_FIRST = 1
_NOT_STARTED = 126
_NOT_FOUND = 127
_SIGNALLED = 128
_CLIENT_ERRORS = range(400, 500)
_LATER = (429,)
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_PASSED_ON = frozenset({
    signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGALRM, signal.SIGCONT, signal.SIGUSR1,
    signal.SIGUSR2,
})  # fmt: skip


class NoFilesError(Exception):
    """The files can't be had or kept; the text says why."""


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
        self._trusted = _trusted_authorities() if self._base.startswith("https:") else None

    def call(self, method: str, path: str, body: bytes | None = None, kind: str = _JSON) -> Any:
        """The JSON of an answer; repeated where it breaks off."""
        pauses = iter(_PAUSES_S)
        while True:
            try:
                with self._open(method, path, body, kind) as answer:
                    return json.load(answer)
            except (HTTPException, OSError, ValueError) as error:
                if (pause := next(pauses, None)) is None:
                    raise NoFilesError(f"the server's answers break off again and again ({error})") from error
                time.sleep(pause)

    def put(self, path: str, fields: Any) -> Any:
        """Send JSON."""
        return self.call("PUT", path, json.dumps(fields, ensure_ascii=False).encode())

    def chunks(self, path: str, count: int) -> Iterator[tuple[bytes, bytes]]:
        """The chunks of a folder; a broken connection is made again where it broke."""
        done = tried = 0
        while done < count:
            try:
                with self._open("GET", f"{path}?skip={done}") as answer:
                    for frame in read_frames(answer.read):
                        yield frame
                        done, tried = done + 1, 0
            except (FrameError, HTTPException, OSError):
                pass  # it goes on below from the last whole chunk
            if done < count:
                if tried == len(_PAUSES_S):
                    raise NoFilesError("the connection to the server breaks off again and again")
                time.sleep(_PAUSES_S[tried])
                tried += 1

    def _open(self, method: str, path: str, body: bytes | None = None, kind: str = _JSON) -> IO[bytes]:
        headers = {"Authorization": f"Bearer {self._token}", "User-Agent": "gpu-dev-job"}
        if body is not None:
            headers["Content-Type"] = kind
        for pause in (*_PAUSES_S, None):
            request = Request(self._base + path, body, headers, method=method)  # noqa: S310 - the server's own address
            try:
                opened: IO[bytes] = urlopen(request, timeout=_SILENCE_S, context=self._trusted)  # noqa: S310
            except HTTPError as error:
                why = _detail(error)
                if error.code in _CLIENT_ERRORS and error.code not in _LATER:
                    raise NoFilesError(why) from error
            except (HTTPException, OSError) as error:
                why = f"the server does not answer ({error})"
            else:
                return opened
            if pause is None:
                raise NoFilesError(why)
            time.sleep(pause)
        raise NoFilesError(why)


def _trusted_authorities() -> ssl.SSLContext:
    context = ssl.create_default_context()
    carried = Path(__file__).parents[2] / AUTHORITIES
    if carried.is_file():
        context.load_verify_locations(carried)
    return context


def _detail(error: HTTPError) -> str:
    try:
        return str(json.load(error)["detail"])
    except (ValueError, KeyError, TypeError, OSError, HTTPException):
        return f"the server answered {error.code}"


def bring_files(server: JobServer, folder: Path) -> list[str]:
    """Write the job's files into a folder; returns the paths that are kept at the end."""
    found = server.call("GET", f"/v1/jobs/{server.job}/files")
    entries = [entry_of(one) for one in found["entries"]]
    if (fault := fault_of_entries(entries)) is not None:
        raise NoFilesError(fault)
    write_entries(folder, entries, server.chunks(f"/v1/jobs/{server.job}/files/data", found["chunks"]))
    return list(map(str, found["fetch"]))


def keep_files(server: JobServer, folder: Path, paths: Sequence[str]) -> None:
    """Send what is at these paths of a folder as the job's results. What can't be kept is said and left out."""
    entries = list({entry.path: entry for path in paths for entry in _entries(folder, path)}.values())
    if (fault := fault_of_entries(entries)) is not None:
        raise NoFilesError(fault)
    answer: Any = {"id": None, "missing": []}
    for _ in range(3):
        answer = server.put("/v1/uploads/folders", {"entries": [fields_of(entry) for entry in entries]})
        if answer["id"] is not None:
            break
        for pack in packs(_data(folder, entries, set(answer["missing"]))):
            server.call("PUT", "/v1/uploads", pack, _BYTES)
    if answer["id"] is None:
        raise NoFilesError("files changed while they were sent")
    server.put(f"/v1/jobs/{server.job}/results", {"folder": answer["id"]})


def _entries(folder: Path, path: str) -> Iterator[FolderEntry]:
    """The entries at and below a path, which may be no folder."""
    places = [folder if path == HERE else folder / path]
    if path != HERE and not os.path.lexists(places[0]):
        _say(f"{path} is not there, so it is not kept")
    while places:
        place = places.pop()
        name = str(place.relative_to(folder))
        if is_of_git(name):
            _say(f"not kept: {name} is of Git")
            continue
        try:
            entry = read_entry(folder, name, place.lstat())
            fault = None if place == folder else fault_of_entry(entry)
            if place.is_dir() and not place.is_symlink():
                places += sorted(place.iterdir(), reverse=True)
        except FileNotFoundError:
            continue
        except (UnusableFileError, OSError) as error:
            fault = str(error)
        if fault is not None:
            _say(f"not kept: {fault}")
        elif place != folder:
            yield entry


def _data(folder: Path, entries: Sequence[FolderEntry], missing: set[str]) -> Iterator[tuple[bytes, bytes]]:
    for entry in entries:
        if missing.isdisjoint(entry.chunks):
            continue
        chunks = read_chunks(folder / entry.path, entry.size)
        for (digest, _), chunk in zip(chunk_sizes([entry]), chunks, strict=True):
            if digest in missing:
                missing.discard(digest)
                yield bytes.fromhex(digest), chunk


def run_command(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run the command, pass signals on, and return its exit code, 128 and the number for a signal.

    What a parent sends, it sends to the whole group, and so to the command, too: that is not passed on once more.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*_PASSED_ON, signal.SIGCHLD})
    if not command:
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
        kept = bring_files(server, folder)
    except (NoFilesError, UnusableFileError, OSError) as error:
        _say(f"The job's files did not come: {error}. Submit the job again.")
        return _NOT_STARTED
    code = run_command(sys.argv[1:], {**os.environ, FOLDER_VARIABLE: str(folder)})
    if kept and os.environ.get("NODE_RANK", "0") == "0":
        try:
            keep_files(server, folder, kept)
        except (NoFilesError, UnusableFileError, OSError) as error:
            _say(f"Files were not kept: {error}.")
            return code or 1
    return code


if __name__ == "__main__":
    sys.exit(main())

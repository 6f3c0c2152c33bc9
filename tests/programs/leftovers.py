"""That a test session leaves nothing: a folder for all its temporary files, and what is left at its end is an error.

Each session (each worker of pytest-xdist) has `<temporary folder>/gpu-dev-tests-<user>/<its process>`, and the same in
memory for what need not lie on a disk. What sessions that were killed have left there is removed by the next one.
"""

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

import psutil

from tests.waiting import eventually_sync

_PATIENCE_S = 120.0
_MEMORY = Path("/dev/shm")
_ROOM = 2 * 2**30
"""Bytes that must be free in memory: several times what the server of a session needs."""


def end_orderly_when_told_to() -> None:
    """SIGTERM as Ctrl-C: what tests have started is ended first.

    Ctrl-C itself and a hang-up are heeded, by what tests start, too, although a shell makes what it starts in the
    background deaf to the one, and nohup to the other.
    """

    def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@contextmanager
def folder_in_memory(own: Path) -> Iterator[Path]:
    """A folder like the session's own, in memory where there is room: creating a database costs a tenth there."""
    if not os.access(_MEMORY, os.W_OK) or shutil.disk_usage(_MEMORY).free < _ROOM:
        yield own
        return
    made = _made_below(_MEMORY)
    try:
        yield made
    finally:
        _remove(made)


def _made_below(place: Path) -> Path:
    sessions = place / f"gpu-dev-tests-{os.getuid()}"
    sessions.mkdir(mode=0o711, exist_ok=True)
    for session in sessions.iterdir():
        if session.name.isdigit() and not psutil.pid_exists(int(session.name)):
            _remove(session)
    own = sessions / str(os.getpid())
    own.mkdir(mode=0o711)
    return own


@contextmanager
def own_folder() -> Iterator[Path]:
    """The session's folder, through which other accounts can pass; below it, `tmp` is for temporary files.

    `home` is the home of whatever is started: shells of this machine's people read files there that take seconds.

    Raises AssertionError at the end where a temporary file or a process is left.
    """
    own = _made_below(Path(tempfile.gettempdir()))
    (own / "tmp").mkdir()
    (own / "tmp").chmod(0o1777)
    (own / "home").mkdir(mode=0o700)
    before = {name: os.environ.get(name) for name in ("TMPDIR", "HOME")}
    os.environ["TMPDIR"] = tempfile.tempdir = str(own / "tmp")
    os.environ["HOME"] = str(own / "home")
    try:
        yield own
        if "kubernetes.aio.config.kube_config" in sys.modules:  # it would do so at the very end of the process
            sys.modules["kubernetes.aio.config.kube_config"]._cleanup_temp_files()
        # A process told to end at the end of a test may take a moment.
        with suppress(AssertionError):
            eventually_sync(lambda: not _left(own), _PATIENCE_S)
        assert not (left := _left(own)), f"tests have left: {left}"
    finally:
        tempfile.tempdir = None
        for name, value in before.items():
            del os.environ[name]
            if value is not None:
                os.environ[name] = value
        _remove(own)


def _left(session: Path) -> list[str]:
    """Temporary files, and processes that were told to put theirs there."""
    files = [str(path) for path in (session / "tmp").iterdir()]
    return files + [
        f"process {process.pid}: {process.info['cmdline']}"
        for process in psutil.process_iter(["cmdline", "environ"])
        if process.pid != os.getpid() and (process.info["environ"] or {}).get("TMPDIR") == str(session / "tmp")
    ]


def _remove(session: Path) -> None:
    """With the database servers that still run in it. Sessions that begin together find the same leftovers."""
    with suppress(FileNotFoundError):  # another session has removed it meanwhile
        for depth in ("postgres", "*/postgres", "*/*/postgres"):
            for server in session.glob(depth):
                from reservation_core.adapters.postgres.embedded.errors import AlreadyInUseError
                from reservation_core.adapters.postgres.embedded.server import EmbeddedPostgres

                with suppress(AlreadyInUseError):  # another session is at it
                    EmbeddedPostgres(server.parent).destroy()
    shutil.rmtree(session, ignore_errors=True)

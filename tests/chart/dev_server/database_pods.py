"""The database servers of the chart gpu-dev-server, started for real: the rendered configuration and scripts, with the
programs of the embedded server, which knows no TLS, or of one that does.
"""

import base64
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import asyncpg
import psutil

from reservation_core.adapters.postgres.embedded import layout as layouts
from reservation_core.adapters.postgres.embedded.account import Account, server_account
from tests.chart.rendering import CHARTS, documents_of, one, render
from tests.programs.ports import own_port
from tests.waiting import eventually, eventually_sync

PASSWORD = 'it\'s: a \\ "$(password)" `with` %everything'
OWNER = "the o:wner's"
REPLICATION = "re:pl\\ication'"
LONG_S = 120.0


def rendered_files(values: dict[str, Any]) -> dict[str, str]:
    """The files of the ConfigMap."""
    documents = render("gpu-dev-server", values, name="gpu-dev", namespace="default")
    data = one(documents, "ConfigMap", "gpu-dev-postgres")["data"]
    assert isinstance(data, dict)
    return data


def certificates() -> dict[str, str]:
    """The files of a Secret with certificates, as the chart makes it once."""
    # Rendered anew: each call is another authority.
    documents = documents_of(CHARTS / "gpu-dev-server", {}, name="gpu-dev", namespace="default")
    data = one(documents, "Secret", "gpu-dev-postgres-tls")["data"]
    return {name: base64.b64decode(value).decode() for name, value in data.items()}


def programs_with_tls() -> Path | None:
    """The programs of the newest PostgreSQL of this machine that knows TLS, where Debian's packages have them."""
    for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: -int(path.parent.name)):
        asked = [str(folder / "pg_config"), "--configure"]
        whole = all((folder / program).is_file() for program in ("initdb", "pg_config"))
        if int(folder.parent.name) >= 15 and whole and "openssl" in subprocess.check_output(asked, text=True):
            return folder
    return None


def role_of(values: dict[str, Any], name: str) -> dict[str, str]:
    """What the chart tells one of the two servers."""
    documents = render("gpu-dev-server", values, name="gpu-dev", namespace="default")
    (container,) = one(documents, "StatefulSet", name)["spec"]["template"]["spec"]["containers"]
    return {variable["name"]: variable["value"] for variable in container["env"]}


class Pod:
    """One server as its container would run it: the same command, environment and folders, on a port of its own."""

    def __init__(self, name: str, folder: Path, account: Account, programs: Path, tls: dict[str, str]) -> None:
        self.name = name
        self.port = own_port()
        self._folder = folder / name
        self._account = account
        self._programs = programs
        self._process: subprocess.Popen[bytes] | None = None
        self._connections: list[asyncpg.Connection] = []
        for part in ("configuration", "secrets", "run", "volume"):
            (self._folder / part).mkdir(parents=True)
        (self._folder / "secrets" / "password").write_text(PASSWORD)
        (self._folder / "secrets" / "replication-password").write_text(REPLICATION)
        (self._folder / "secrets" / "owner-password").write_text(OWNER)
        for file, text in tls.items():
            (self._folder / "secrets" / file).write_text(text)
        self._environment: dict[str, str] = {}
        self._own(self._folder, *self._folder.rglob("*"))

    @property
    def data(self) -> Path:
        return self._folder / "volume" / "pgdata"

    @property
    def socket(self) -> Path:
        return self._folder / "run"

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")

    @property
    def url(self) -> dict[str, Any]:
        return {"host": "127.0.0.1", "port": self.port, "user": "gpudev", "database": "gpudev", "password": PASSWORD}

    def _own(self, *paths: Path) -> None:
        if self._account.switch:
            for path in paths:
                os.chown(path, self._account.uid, self._account.gid)

    def start(self, values: dict[str, Any], primary: "Pod", standby: "Pod | None" = None, *, begun: str = "") -> None:
        """As the kubelet does once the chart with these values is there. Without a standby nobody answers for it;
        `begun` is what the chart has read from the cluster.
        """
        for name, text in {**rendered_files(values), **({"begun": begun} if begun else {})}.items():
            (self._folder / "configuration" / name).write_text(text)
        self._own(*(self._folder / "configuration").iterdir())
        folders = {"PG_CONFIG": "configuration", "PG_SECRETS": "secrets", "PG_RUN": "run"}
        self._environment = {
            **role_of(values, self.name),
            **{name: str(self._folder / part) for name, part in folders.items()},
            "PGSSLROOTCERT": str(self._folder / "secrets" / "ca.crt"),
            "PGDATA": str(self.data),
            "PGPORT": str(self.port),
            "PG_PRIMARY_HOST": "127.0.0.1",
            "PG_PRIMARY_PORT": str(primary.port),
            "PG_STANDBY_HOST": "127.0.0.1",
            "PG_STANDBY_PORT": str(standby.port if standby else own_port()),
            "PG_ASK_S": "2",
        }
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["sh", str(self._folder / "configuration" / "start.sh")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._arguments(self._environment),
            )

    def _arguments(self, environment: dict[str, str]) -> dict[str, Any]:
        arguments = self._account.popen_arguments()
        path = f"{self._programs}:{arguments['env']['PATH']}"
        return {**arguments, "env": {**arguments["env"], **environment, "PATH": path}}

    def run(self, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """One of the scripts for backups, against this server."""
        names = ("PG_CONFIG", "PG_SECRETS", "PG_RUN", "PGPORT", "PGSSLMODE", "PGSSLROOTCERT")
        owner = script == "restore.sh" and self._environment["PG_OWNER"] != "gpudev"
        if owner:
            # Its own volume has this one's password there.
            (self._folder / "secrets" / "password").write_text(OWNER)
        given = {"PGHOST": "127.0.0.1", "PGUSER": self._environment["PG_OWNER"] if owner else "gpudev",
                 "PGDATABASE": "gpudev", "PG_USER": "gpudev",
                 **{name: self._environment[name] for name in names}}  # fmt: skip
        return subprocess.run(
            ["sh", str(self._folder / "configuration" / script)],
            check=False,
            capture_output=True,
            text=True,
            timeout=LONG_S,
            **self._arguments({**given, **environment}),
        )

    def lose_volume(self) -> None:
        """Give the pod an empty volume in the place of its own."""
        shutil.rmtree(self.data.parent)
        self.data.parent.mkdir()
        self._own(self.data.parent)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """As the kubelet does, or (SIGKILL) as a node that dies: all of its processes at once."""
        process = self._process
        assert process is not None
        if number is signal.SIGKILL:
            self._kill(process)
        else:
            process.send_signal(number)
        self._process = None
        return process.wait(LONG_S)

    def _kill(self, process: "subprocess.Popen[bytes]") -> None:
        # The server's processes are groups of their own, and would notice its end in their own time. One that has ended
        # is there for as long as nobody has asked for it, and a server takes it for the one before it.
        ours = self._in_the_folder()
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(LONG_S)

        def gone() -> bool:
            for other in {*ours, *self._in_the_folder()}:
                ours.add(other)
                with suppress(psutil.NoSuchProcess):
                    other.kill()
            return not any(other.is_running() for other in ours)

        eventually_sync(gone, LONG_S)

    def _in_the_folder(self) -> set[psutil.Process]:
        """Whatever works in our folder."""
        found = set()
        for other in psutil.process_iter():
            with suppress(psutil.Error):
                if Path(other.cwd()).is_relative_to(self._folder):
                    found.add(other)
        return found

    def exited(self) -> int:
        """Wait for a start that gives up; its exit code."""
        assert self._process is not None
        code = self._process.wait(LONG_S)
        self._process = None
        return code

    def clear(self) -> None:
        """Leave neither connections nor processes, however the test went."""
        for connection in self._connections:
            if not connection.is_closed():
                connection.terminate()
        if self._process is not None:
            self._kill(self._process)
            self._process.wait(LONG_S)

    async def connect(self, password: str = PASSWORD) -> asyncpg.Connection:
        """A connection, as soon as the server takes one; it is closed with the server at the latest."""
        made = await eventually(lambda: self._connected(password), LONG_S)
        assert made is not None
        self._connections.append(made)
        return made

    def runs(self) -> None:
        """Raises AssertionError, with what it said, when it has ended."""
        assert self._process is not None
        assert self._process.poll() is None, self.log

    async def _connected(self, password: str) -> asyncpg.Connection | None:
        self.runs()
        try:
            return await asyncpg.connect(**{**self.url, "password": password}, timeout=30)
        except (OSError, asyncpg.CannotConnectNowError):
            return None


@contextmanager
def database_pods(folder: Path, programs: Path | None = None) -> Iterator[Callable[[str], Pod]]:
    """Makes servers of these programs, or embedded ones, with their files in a new folder; at the end they are gone.

    To be left in the loop of those who are connected.
    """
    account = server_account()
    folder.mkdir(mode=0o711)
    (folder / "home").mkdir(mode=0o711)
    layout = layouts.prepare(folder / "home", account)
    chosen = programs or Path(layout.program("postgres")).parent
    tls = certificates() if programs else {}
    made: list[Pod] = []

    def make(name: str) -> Pod:
        made.append(Pod(name, folder, account, chosen, tls))
        return made[-1]

    try:
        yield make
    finally:
        for pod in made:
            pod.clear()
        layouts.remove(folder / "home")
        shutil.rmtree(folder)


def sqlalchemy_url(pod: Pod) -> str:
    return f"postgresql+asyncpg://gpudev:{quote(PASSWORD, safe='')}@127.0.0.1:{pod.port}/gpudev"


async def streams(pod: Pod, standby: Pod) -> None:
    """Wait until the standby that this primary's commits wait for is there."""
    connection = await asyncpg.connect(host=str(pod.socket), port=pod.port, user="postgres", database="postgres")

    async def there() -> object:
        standby.runs()
        return await connection.fetchval("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'")

    try:
        await eventually(there, LONG_S)
    except AssertionError as error:
        error.add_note(f"{pod.name} says:\n{pod.log}\n{standby.name} says:\n{standby.log}")
        raise
    finally:
        await connection.close()


SMALL: dict[str, Any] = {
    "postgres": {
        "configuration": {"shared_buffers": "32MB", "max_connections": 40},
        "tls": {"enabled": False},
        "auth": {"ownerUsername": ""},
    }
}
FAILED_OVER = {"postgres": {**SMALL["postgres"], "primaryIs": "postgres-replica"}}

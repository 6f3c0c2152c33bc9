"""A whole system behind real HTTP, and the command line as the program that people run."""

import asyncio
import io
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest
import structlog
from fastapi import FastAPI

from api_service.app import create_app
from api_service.server import serve
from gpu_dev.client import GpuDevClient
from gpu_dev.errors import ApiError
from gpu_dev.main import main
from gpu_dev.server.connection import Connection
from gpu_dev.server.exchange import Exchange
from gpu_dev.slurm.__main__ import run_program
from reservation_core.domain.statuses import FINAL_STATUSES, JobStatus, Role
from reservation_core.runtime.reading.sign_in import open_sign_in
from reservation_core.runtime.sealing_keys import ensure_key_file
from reservation_core.runtime.settings.components import StandaloneSettings
from reservation_core.runtime.settings.kubernetes import KubernetesSettings
from reservation_core.runtime.wiring import Runtime, open_runtime
from reservation_core.usecases.nodes.update_inventory import update_inventory
from reservation_processor.process import run as process
from tests.database.pools import FEW, PATIENT_S
from tests.kubernetes.api_server import ApiServer
from tests.waiting import PATIENCE_S, eventually_sync

if TYPE_CHECKING:
    from tests.people.sign_in_world import SignInWorld

ROOT = Path(__file__).parents[3]
_SERVICE_ACCOUNTS = """
[[kubernetes]]
namespace = "*"
service_account = "runner"
user = "ci"
create = true
"""


@dataclass(frozen=True)
class Finished:
    """How a command ended and what it wrote."""

    returncode: int
    stdout: str
    stderr: str


@dataclass
class System:
    """A running system: its address, and the tokens of `alice`, `bob` (users) and `admin`."""

    url: str
    tokens: dict[str, str]
    folder: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def environment(self, who: str) -> dict[str, str]:
        """What the command line of one of them finds around it."""
        return {
            "PATH": os.environ["PATH"],
            # The server has this environment, too, while a command runs in its process: see `tests.conftest`.
            **{name: os.environ[name] for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if name in os.environ},
            "HOME": str(self.folder),
            "XDG_CONFIG_HOME": str(self.folder / "config"),
            "GPU_DEV_HOME": str(self.folder / "nothing-here"),
            "GPU_DEV_SERVER": self.url,
            "GPU_DEV_TOKEN": self.tokens.get(who, ""),
            "TZ": "UTC",
        }

    def cli(self, *words: str, who: str = "alice", stdin: str = "", **more: str) -> Finished:
        """Run `gpu-dev` to its end, off a terminal: its `main` in this process, which is quicker than a new one."""
        return self._run_here(main, ("gpu-dev", *words), who, stdin, more)

    def slurm(self, *words: str, who: str = "alice") -> Finished:
        """Run one of Slurm's commands to its end in the same way."""
        return self._run_here(run_program, ("slurm", *words), who, "", {})

    def _run_here(
        self, program: Callable[[], None], words: tuple[str, ...], who: str, stdin: str, more: Mapping[str, str]
    ) -> Finished:
        out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
        with (
            patch.dict(os.environ, {**self.environment(who), **more}, clear=True),
            patch("sys.argv", [*words]),
            patch("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()))),
            patch("sys.stdout", out),
            patch("sys.stderr", err),
            pytest.raises(SystemExit) as ended,
        ):
            program()
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read())
        return Finished(int(ended.value.code or 0), *texts)

    def run_whole(
        self, *words: str, who: str = "alice", stdin: bytes = b"", more: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """Run `gpu-dev` as a process of its own to its end, off a terminal."""
        return subprocess.run(
            [sys.executable, "-m", "gpu_dev", *words],
            env={**self.environment(who), **(more or {})},
            cwd=ROOT,
            input=stdin,
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def begin(self, *words: str, who: str = "alice", **more: str) -> subprocess.Popen[str]:
        """Start `gpu-dev` off a terminal; it is ended with the test."""
        started = subprocess.Popen(
            [sys.executable, "-m", "gpu_dev", *words],
            env={**self.environment(who), **more},
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(started)
        return started


async def _people(runtime: Runtime) -> dict[str, str]:
    tokens = {}
    now = runtime.clock.now()
    async with runtime.uow() as uow:
        for name, role in (("alice", Role.USER), ("bob", Role.USER), ("admin", Role.ADMIN)):
            user = await uow.identities.create_user(name, role, now)
            tokens[name] = runtime.ids.new_secret()
            digest = runtime.ids.digest(tokens[name])
            await uow.identities.create_token(runtime.ids.new_id("tok"), user.id, None, digest, None, now)
    return tokens


class _Thread(threading.Thread):
    """The system in an event loop of its own, so that tests can be blocking clients as real ones are."""

    def __init__(self, database_url: str, folder: Path, kubeconfig: Path | None = None) -> None:
        super().__init__(daemon=True)
        self.kubeconfig = kubeconfig
        self.world: SignInWorld | None = None
        self.database_url = database_url
        self.folder = folder
        self.loop = asyncio.new_event_loop()
        self.up = threading.Event()
        self.stopping = asyncio.Event()
        self.served = asyncio.Event()
        self.url = ""
        self.tokens: dict[str, str] = {}
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.loop.run_until_complete(self._serve())
        except BaseException as error:  # noqa: BLE001 - the test's own thread raises it again
            self.error = error
        finally:
            self.loop.run_until_complete(_last_turns())
            self.loop.close()
            self.up.set()

    async def _serve(self) -> None:
        (self.folder / "keys").mkdir()
        settings = StandaloneSettings(
            home=self.folder / "home", local_gpus="h100:4", end_grace_s=10, estimate_s=0.25, resync_s=0.5,
            database_pool=FEW, database_patience_s=PATIENT_S, secrets_key_file=ensure_key_file(self.folder / "keys"),
        )  # fmt: skip
        async with open_runtime(settings, self.database_url) as runtime:
            self.tokens = await _people(runtime)
            await update_inventory(runtime.uow, runtime.cluster, runtime.clock)
            processing = asyncio.create_task(self._process(runtime, settings))
            try:
                async with self._app(runtime, settings) as app:
                    await serve(app, "127.0.0.1:0", stop=self.stopping, ready=self._ready)
            finally:
                self.stopping.set()
                self.served.set()
                await processing

    async def _process(self, runtime: Runtime, settings: StandaloneSettings) -> None:
        """Process once the address is known that jobs reach the server at."""
        await self.served.wait()
        await process(runtime, settings.model_copy(update={"job_server": self.url or None}), self.stopping)

    @asynccontextmanager
    async def _app(self, runtime: Runtime, settings: StandaloneSettings) -> AsyncIterator[FastAPI]:
        """With those who vouch for people beside it, where the test wants these."""
        if self.kubeconfig is None:
            yield create_app(runtime, settings)
            return
        from tests.people.sign_in_world import RULES, sign_in_world

        async with sign_in_world(self.folder, RULES + _SERVICE_ACCOUNTS) as self.world:
            kubernetes = KubernetesSettings(kubeconfig=self.kubeconfig)
            believing = settings.model_copy(update={"auth": self.world.settings, "kubernetes": kubernetes})
            yield create_app(runtime, settings, open_sign_in(believing, runtime, self.world.network))

    def _ready(self, url: str) -> None:
        self.url = url
        self.served.set()
        self.up.set()


async def _last_turns() -> None:
    """Let connections that were closed last be closed: that is done in later turns of the loop."""
    for _ in range(5):
        await asyncio.sleep(0)


def _end_all_jobs(system: System) -> None:
    connection = Connection(system.url, system.tokens["admin"])
    with GpuDevClient(Exchange(connection)) as client:

        def none_left() -> bool:
            left = list(client.jobs(frozenset(JobStatus) - FINAL_STATUSES))
            for job in left:
                if job.status is not JobStatus.ENDING:
                    with suppress(ApiError):  # it has ended meanwhile
                        client.cancel(job.id)
            return not left

        eventually_sync(none_left)


@pytest.fixture
def server_log(tmp_path: Path) -> Iterator[Path]:
    """Where the server's log goes: it shares the process, and must not end up in what a command writes."""
    path = tmp_path / "server.log"
    with path.open("w") as file:
        structlog.configure(logger_factory=structlog.PrintLoggerFactory(file))
        yield path
        structlog.reset_defaults()


def _no_day_begins() -> bool:
    """Whether `tomorrow` is the same day for as long as a test takes."""
    now = datetime.now(UTC)
    return now.date() == (now + timedelta(minutes=1)).date()


@pytest.fixture
def system(database_url: str, tmp_path: Path, server_log: Path) -> Iterator[System]:
    """Four simulated h100 on one node, everything that serves them, and three people."""
    eventually_sync(_no_day_begins)
    with _running(_Thread(database_url, tmp_path)) as running:
        yield running


@pytest.fixture
def unreachable(tmp_path: Path) -> System:
    """The command line of people whose server can't be reached: what else it says, it said before it sent anything."""
    return System("http://127.0.0.1:1", {"alice": "tok", "admin": "tok"}, tmp_path)


@pytest.fixture
def believing(
    database_url: str, tmp_path: Path, server_log: Path, api_server: ApiServer
) -> Iterator[tuple[System, "SignInWorld"]]:
    """The same, letting in whom AWS, an issuer or the API server vouch for."""
    thread = _Thread(database_url, tmp_path, api_server.kubeconfig)
    with _running(thread) as running:
        assert thread.world is not None
        yield running, thread.world


@contextmanager
def _running(thread: _Thread) -> Iterator[System]:
    thread.start()
    assert thread.up.wait(PATIENCE_S)
    if thread.error is not None:
        raise thread.error
    running = System(thread.url, thread.tokens, thread.folder)
    try:
        yield running
    finally:
        for one in running.started:
            one.kill()
            one.communicate()
        if thread.error is None:
            # Pods outlive the control plane by design, so nothing may run when it goes.
            _end_all_jobs(running)
        thread.loop.call_soon_threadsafe(thread.stopping.set)
        thread.join(PATIENCE_S)
    if thread.error is not None:
        raise thread.error

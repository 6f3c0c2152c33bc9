"""The whole system: its database, components, timers and first token, and the greeting once it is up."""

import asyncio
import os
import shlex
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import assert_never

import structlog

from api_service.app import create_app
from api_service.server import serve
from availability_updater.update import run_once as update_once
from gpu_dev.errors import ClientError
from gpu_dev.server.connection import ADDRESS_FILE, resolve
from reservation_core.adapters.local.inventory import (
    SIMULATED_LABEL,
    BadGpusSettingError,
    parse_gpus,
    short_hostname,
)
from reservation_core.adapters.postgres.connection.migrating import upgrade
from reservation_core.adapters.postgres.embedded.abandoned import abandoned_databases
from reservation_core.adapters.postgres.embedded.errors import EmbeddedPostgresError, GivenUpError
from reservation_core.adapters.postgres.embedded.layout import make_home
from reservation_core.adapters.postgres.embedded.lock import FolderLock
from reservation_core.adapters.postgres.embedded.server import EmbeddedPostgres
from reservation_core.domain.cards.node_reports import NodeReport
from reservation_core.domain.jobs.repeated_asking import RepeatedEndRequests
from reservation_core.runtime.http.serving import ListenError, open_socket
from reservation_core.runtime.loops.loops import Loop
from reservation_core.runtime.loops.start_waiting import StoppedError, wait_for_start
from reservation_core.runtime.processes.companions import beside
from reservation_core.runtime.processes.garbage import calm_garbage_collector
from reservation_core.runtime.processes.shutdown import stop_on_signals
from reservation_core.runtime.reading.policy_file import read_policy_file, take_over
from reservation_core.runtime.reading.reading import open_reads
from reservation_core.runtime.reading.sign_in_file import read_sign_in_file
from reservation_core.runtime.sealing_keys import ensure_key_file
from reservation_core.runtime.settings.components import ClusterKind, StandaloneSettings
from reservation_core.runtime.settings.error import SettingsError
from reservation_core.runtime.wiring import Runtime, open_runtime
from reservation_expiry.expire import ends_pods
from reservation_expiry.expire import run_once as expire_once
from reservation_expiry.expire import watch as end_pods
from reservation_processor.process import run as process
from ssh_gateway.listening import run as serve_ssh
from standalone.administrator import AdminToken, ensure_admin_token
from standalone.components import LONGEST_PAUSE_S, Start, run_together

_DATABASE_CHECK_S = 0.5

_log = structlog.get_logger(__name__)


async def run_system(settings: StandaloneSettings) -> None:
    """Run everything until SIGTERM or SIGINT; while the database or the cluster is away at the start, wait for it.

    Raises AlreadyInUseError, EmbeddedPostgresError, ListenError, SettingsError, MigrationError, ComponentFailedError,
    StoppedError.
    """
    if not settings.home.exists():
        _check(settings)  # before a home is made that nothing will use
    settings = settings.model_copy(update={"home": make_home(settings.home)})
    lock = FolderLock(settings.home / "lock")
    lock.acquire(f"The home {settings.home}")
    try:
        _check(settings)
        server = None if settings.database_url is not None else EmbeddedPostgres(settings.home)
        stop = stop_on_signals(at_once=None if server is None else server.ask_to_stop)
        if server is not None and settings.seal_key_file is None:
            settings = settings.model_copy(update={"seal_key_file": ensure_key_file(settings.home)})
        async with _database(settings, server, stop) as url:
            await wait_for_start(lambda: _upgrade(url, server, stop), stop=stop)
            async with AsyncExitStack() as closing:
                opening = open_runtime(settings, url, application="gpu-dev-standalone")
                runtime = await closing.enter_async_context(opening)
                if server is not None:
                    keeping = keep_server(server, runtime.loops["database_server"], stop)
                    await closing.enter_async_context(beside(keeping, name="database server"))
                await _run(runtime, settings, stop)
    finally:
        lock.release()


def _check(settings: StandaloneSettings) -> None:
    """Check addresses, files and GPUs of the settings, as far as possible without a database.

    Raises ListenError, SettingsError.
    """
    if settings.policy_file is not None:
        read_policy_file(settings.policy_file)
    if settings.auth.file is not None:
        read_sign_in_file(settings.auth.file)
    if settings.local_gpus and settings.local_gpus.strip() and settings.cluster is ClusterKind.LOCAL:
        try:
            parse_gpus(settings.local_gpus, short_hostname())
        except BadGpusSettingError as error:
            raise SettingsError(str(error)) from error
    open_socket(settings.listen).close()
    if settings.metrics_listen is not None:
        open_socket(settings.metrics_listen, "GPU_DEV_METRICS_LISTEN").close()
    if settings.ssh.listen is not None and "listen" in settings.ssh.model_fields_set:
        open_socket(settings.ssh.listen, "GPU_DEV_SSH__LISTEN").close()


@asynccontextmanager
async def _database(
    settings: StandaloneSettings, server: EmbeddedPostgres | None, stop: asyncio.Event
) -> AsyncIterator[str]:
    """Yield the database's URL; an embedded server runs for as long as the block.

    Raises StoppedError if `stop` is set before the server is up.
    """
    if settings.database_url is not None:
        yield settings.database_url.get_secret_value()
    elif server is not None:
        warn_of_abandoned_databases()
        try:
            # In a thread: after a crash this may take minutes, and signals must be handled meanwhile.
            await asyncio.to_thread(server.start, stop.is_set)
            yield server.url
        except GivenUpError as error:
            raise StoppedError from error
        finally:
            await asyncio.to_thread(server.stop)


async def _upgrade(url: str, server: EmbeddedPostgres | None, stop: asyncio.Event) -> None:
    if server is not None and not server.alive():
        await asyncio.to_thread(server.start_again, stop.is_set)
    await upgrade(url)


def warn_of_abandoned_databases() -> None:
    """Log the folders of databases whose homes are gone. Only a person knows whether one is still needed."""
    left = abandoned_databases()
    if left:
        _log.warning(
            "databases of homes that are gone or have another one are left; remove these folders unless such a home "
            "still exists (moved elsewhere, or on a disk that is not mounted)",
            folders=[str(folder) for folder in left],
        )


def with_own_address(settings: StandaloneSettings) -> StandaloneSettings:
    """The settings with this system's own address for programs in jobs, unless another one is set."""
    host, _, port = settings.listen.rpartition(":")
    if settings.job_server is not None or port == "0":
        return settings
    scheme = "http" if settings.tls_cert is None else "https"
    reached = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host)  # noqa: S104 - what it listens on
    return settings.model_copy(update={"job_server": f"{scheme}://{reached}:{port}"})


async def _serve_ssh(runtime: Runtime, settings: StandaloneSettings, stop: asyncio.Event) -> None:
    """Serve SSH; where only its usual port is taken, as by another server of this machine, all else goes on without."""
    try:
        await serve_ssh(runtime, settings, stop)
    except ListenError as error:
        if "listen" in settings.ssh.model_fields_set:
            raise
        _log.warning("there is no SSH gateway: its port is taken", error=str(error))
        await stop.wait()


async def _run(runtime: Runtime, settings: StandaloneSettings, stop: asyncio.Event) -> None:
    # Before anything listens: otherwise the first job is refused for want of GPUs.
    await wait_for_start(lambda: take_over(runtime, settings.policy_file), stop=stop)
    await wait_for_start(lambda: update_once(runtime, settings.kept_for_cpu_jobs), stop=stop)
    token = await wait_for_start(
        lambda: ensure_admin_token(runtime.uow, runtime.ids, settings.home, runtime.clock.now()), stop=stop
    )
    nodes = await wait_for_start(runtime.cluster.list_nodes, stop=stop)

    def greet(url: str) -> None:
        write_address(settings.home, url)
        sys.stdout.write(greeting(url, settings, token, nodes))
        sys.stdout.flush()

    asked = RepeatedEndRequests(timedelta(seconds=settings.ending_patience_s))
    components: dict[str, Start] = {
        "API": Api(runtime, settings, stop, greet).run,
        "processor": lambda: process(runtime, with_own_address(settings), stop),
        "expiry": lambda: runtime.loops["expiry"].repeat(
            lambda: expire_once(runtime, settings, watched=True, asked=asked),
            rest_s=settings.expire_every_s, rests_first=True, stop=stop,
        ),
        "updater": lambda: runtime.loops["updater"].repeat(
            lambda: update_once(runtime, settings.kept_for_cpu_jobs),
            rest_s=settings.update_every_s, rests_first=True, stop=stop,
        ),
        "SSH gateway": lambda: _serve_ssh(runtime, settings, stop),
    }  # fmt: skip
    if ends_pods(settings):
        components["ending of pods"] = lambda: end_pods(runtime, settings, stop)
    calm_garbage_collector(in_small_parts=True)
    await run_together(components, stop, runtime.loops)
    _log.info("ended in order; running jobs go on, and the next start takes them over")


class Api:
    """The API as a component. A restarted one listens at the same address."""

    def __init__(
        self, runtime: Runtime, settings: StandaloneSettings, stop: asyncio.Event, ready: Callable[[str], None]
    ) -> None:
        self._runtime = runtime
        self._settings = settings
        self._stop = stop
        self._ready = ready
        self._listen = settings.listen
        self._was_up = False

    async def run(self) -> None:
        async with open_reads(self._settings, self._runtime, application="gpu-dev-standalone") as reads:
            app = create_app(self._runtime, self._settings, reads=reads)
            await serve(app, self._listen, stop=self._stop, ready=self._listening)

    def _listening(self, url: str) -> None:
        if not self._was_up:
            self._was_up = True
            self._listen = url.partition("://")[2]
            self._ready(url)


async def keep_server(server: EmbeddedPostgres, loop: Loop, stop: asyncio.Event) -> None:
    """Restart the database server whenever it ends before `stop`."""

    async def check() -> None:
        if server.alive():
            return
        loop.failed(EmbeddedPostgresError(f"The database server ended by itself; {server.log} may say why."))
        _log.error("the database server has ended; starting it again", log=str(server.log))
        with suppress(GivenUpError):
            await asyncio.to_thread(server.start_again, stop.is_set)
            _log.info("the database server is back")

    await loop.repeat(check, rest_s=_DATABASE_CHECK_S, rests_first=True, longest_s=LONGEST_PAUSE_S, stop=stop)


def write_address(home: Path, url: str) -> None:
    """Write down where the server listens, for command lines of this folder."""
    fresh = home / f"{ADDRESS_FILE}.fresh"
    fresh.write_text(f"{_reached(url)}\n", encoding="ascii")
    fresh.chmod(0o644)
    fresh.replace(home / ADDRESS_FILE)


def _reached(url: str) -> str:
    return url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


def greeting(url: str, settings: StandaloneSettings, token: AdminToken, nodes: list[NodeReport]) -> str:
    """The text that tells a person how to use the system at `url`."""
    url = _reached(url)
    database = "GPU_DEV_DATABASE_URL" if settings.database_url is not None else "embedded PostgreSQL"
    return f"""
GPU Dev Server is up.

  URL       {url}  (REST reference: {url}/docs)
  token     {token.path}  (user admin{", new" if token.made else ""})
  GPUs      {_cards(nodes, settings.cluster)}
  database  {database}; look into it with: gpu-dev psql

Open the URL and sign in with the token, or submit a job from a second terminal:

  {_first_job(url, settings)}

Ctrl-C ends the server. Running jobs go on; the next start finds them again.
"""


def _first_job(url: str, settings: StandaloneSettings) -> str:
    """A command line that works in a second terminal, in the same folder."""
    usual = StandaloneSettings.model_fields
    home = (
        "" if settings.home == usual["home"].default.absolute() else f"GPU_DEV_HOME={shlex.quote(str(settings.home))} "
    )
    program = "gpu-dev" if shutil.which("gpu-dev") else shlex.quote(str(Path(sys.executable).with_name("gpu-dev")))
    server = "" if _is_found(url, settings.home) else f" --server {url}"
    return f"{home}{program}{server} run --gpus 1 --for 1m -- sh -c 'echo I was given GPU $CUDA_VISIBLE_DEVICES'"


def _is_found(url: str, home: Path) -> bool:
    """Whether a second terminal's command line reaches this server unless it is told another."""
    environ = {name: value for name, value in os.environ.items() if name != "GPU_DEV_LISTEN"}
    try:
        return resolve(None, None, {**environ, "GPU_DEV_HOME": str(home)}).server == url
    except ClientError:
        return False


def _cards(nodes: list[NodeReport], cluster: ClusterKind) -> str:
    """The number of GPUs by type, and a warning if they are simulated."""
    counts: dict[str, int] = {}
    for node in nodes:
        for gpu in node.gpus:
            counts[gpu.gpu_type] = counts.get(gpu.gpu_type, 0) + 1
    if not counts:
        details = " ".join(node.detail for node in nodes if node.detail)
        return f"none. {details or _no_cards(cluster)}"
    words = ", ".join(f"{count} x {gpu_type}" for gpu_type, count in sorted(counts.items()))
    if any(SIMULATED_LABEL in node.labels for node in nodes):
        return f"{words}, SIMULATED (GPU_DEV_LOCAL_GPUS): jobs get GPU numbers, but these GPUs do not exist"
    return words


def _no_cards(cluster: ClusterKind) -> str:
    match cluster:
        case ClusterKind.LOCAL:
            return "Set GPU_DEV_LOCAL_GPUS=h100:4 to simulate four."
        case ClusterKind.KUBERNETES:
            return "GPU_DEV_KUBERNETES__NODE_SELECTOR selects no node."
        case _:
            assert_never(cluster)

"""The adapters of a process, opened and closed together."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import assert_never

from sqlalchemy.ext.asyncio import AsyncEngine

from reservation_core.adapters.clock import SystemClock
from reservation_core.adapters.identity.ids import RandomIds
from reservation_core.adapters.local.cluster import LocalCluster
from reservation_core.adapters.local.disks.disk_folders import DiskFolders
from reservation_core.adapters.local.inventory import BadGpusSettingError
from reservation_core.adapters.local.sessions.pod_streams import LocalPodStreams
from reservation_core.adapters.postgres.connection.engine import open_engine
from reservation_core.adapters.postgres.connection.migrating import require_migrated
from reservation_core.adapters.postgres.connection.queues import open_client
from reservation_core.adapters.postgres.connection.shared_clock import ASK_EVERY_S, SharedClock
from reservation_core.adapters.postgres.connection.wakeups import PostgresWakeups
from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.domain.request_terms import MILLI, Share
from reservation_core.ports.clock import Clock
from reservation_core.ports.cluster import Cluster
from reservation_core.ports.disks.disks import DiskStore
from reservation_core.ports.gpu_use import GpuSampler
from reservation_core.ports.ids import IdSource
from reservation_core.ports.sessions.pod_streams import PodStreams
from reservation_core.ports.traces import Traces
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.ports.wakeups import Wakeups
from reservation_core.runtime.database_urls import database_url_of
from reservation_core.runtime.gpu_use import open_gpu_sampler
from reservation_core.runtime.loops.loops import Loops
from reservation_core.runtime.loops.start_waiting import wait_for_start
from reservation_core.runtime.open_files import soft_limit_before
from reservation_core.runtime.processes.companions import beside
from reservation_core.runtime.sealing_keys import sealing_of
from reservation_core.runtime.settings.components import ClusterKind, CommonSettings
from reservation_core.runtime.settings.error import SettingsError
from reservation_core.runtime.ssh.counts import SshCounts


@dataclass(frozen=True, slots=True)
class Runtime:
    """The adapters of a process, ready for use."""

    uow: UnitOfWorkFactory
    wakeups: Wakeups
    clock: Clock
    ids: IdSource
    cluster: Cluster
    pod_streams: PodStreams
    loops: Loops = field(default_factory=Loops)
    ssh: SshCounts = field(default_factory=SshCounts)
    steps: SharedClock | None = None
    gpu_sampler: GpuSampler | None = None
    disk_store: DiskStore | None = None
    traces: Traces | None = None

    def leading(self, epoch: int) -> AbstractAsyncContextManager[None]:
        """Lead in `epoch` during the block, and compensate steps of the database's clock.

        Raises DatabaseUnavailableError at its beginning.
        """
        return nullcontext() if self.steps is None else self.steps.leading(epoch)


def open_cluster(settings: CommonSettings, clock: Clock) -> Cluster:
    """The cluster of the settings. Raises SettingsError."""
    match settings.cluster:
        case ClusterKind.LOCAL:
            try:
                return LocalCluster(
                    settings.home,
                    settings.local_gpus,
                    SystemClock(),
                    clock,
                    open_files=soft_limit_before(),
                    log_bytes_per_job=settings.retention.log_bytes_per_job,
                    has=Share(settings.local_cpus and settings.local_cpus * MILLI, settings.local_memory),
                    cgroup=settings.local_cgroup,
                )
            except BadGpusSettingError as error:
                raise SettingsError(str(error)) from error
        case ClusterKind.KUBERNETES:
            return _open_kubernetes(settings, clock)
        case _:
            assert_never(settings.cluster)


def open_pod_streams(settings: CommonSettings) -> PodStreams:
    """The ways into the pods of the settings' cluster. Raises SettingsError."""
    match settings.cluster:
        case ClusterKind.LOCAL:
            return LocalPodStreams(settings.home)
        case ClusterKind.KUBERNETES:
            from reservation_core.runtime import kubernetes  # noqa: PLC0415 - see _open_kubernetes

            return kubernetes.open_pod_streams(settings)
        case _:
            assert_never(settings.cluster)


def open_disk_store(settings: CommonSettings) -> DiskStore | None:
    """Where disks of the settings' cluster are kept; None where it has none."""
    match settings.cluster:
        case ClusterKind.LOCAL:
            return DiskFolders(settings.home)
        case ClusterKind.KUBERNETES:
            if settings.kubernetes.disk_class is None:
                return None
            from reservation_core.runtime import kubernetes  # noqa: PLC0415 - see _open_kubernetes

            return kubernetes.open_disk_claims(settings, settings.kubernetes.disk_class)
        case _:
            assert_never(settings.cluster)


def _open_kubernetes(settings: CommonSettings, clock: Clock) -> Cluster:
    # Imported only if needed: the client library takes 50 MB and half a second.
    from reservation_core.adapters.kubernetes.api_server.credentials import KubeconfigError  # noqa: PLC0415
    from reservation_core.adapters.kubernetes.pods.pod_defaults import BadPodDefaultsError  # noqa: PLC0415
    from reservation_core.runtime.kubernetes import open_kubernetes  # noqa: PLC0415

    try:
        return open_kubernetes(settings, clock)
    except KubeconfigError as error:
        raise SettingsError(str(error)) from error
    except BadPodDefaultsError as error:
        raise SettingsError(f"GPU_DEV_KUBERNETES__POD_DEFAULTS: {error}") from error


def open_traces(settings: CommonSettings, application: str) -> Traces | None:
    """Where traces of jobs go; None where they are off. Raises SettingsError."""
    if settings.traces_url is None:
        return None
    # Imported only if needed: it is an extra, and most servers do without.
    try:
        from reservation_core.adapters.otlp_traces import OtlpTraces  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"GPU_DEV_TRACES_URL needs the Python package {error.name}, which is not installed."
            " Install gpu-dev-server[server,traces], or remove the variable."
        ) from error
    return OtlpTraces(str(settings.traces_url), application)


async def _begin(clock: SharedClock, engine: AsyncEngine) -> None:
    await require_migrated(engine)
    await clock.begin()


@asynccontextmanager
async def open_runtime(
    settings: CommonSettings,
    database_url: str | None = None,
    *,
    application: str = "gpu-dev",
    wait_s: float | None = None,
) -> AsyncIterator[Runtime]:
    """All adapters of a process, during the block.

    Waits at most `wait_s` seconds for a database that is away or not migrated, then raises DatabaseUnavailableError.
    With None it does not wait: the process works when the database, which must be migrated, is available.
    """
    url = database_url or database_url_of(settings)
    sealing = sealing_of(settings)
    async with AsyncExitStack() as closing:
        engine = open_engine(url, pool=settings.database_pool, application=application)
        closing.push_async_callback(engine.dispose)
        clock = SharedClock(engine, SystemClock())
        # The cluster first: errors in its settings must show even while the database is away.
        cluster = open_cluster(settings, clock)
        closing.push_async_callback(cluster.close)
        gpu_sampler = open_gpu_sampler(settings)
        if gpu_sampler is not None:
            closing.push_async_callback(gpu_sampler.close)
        disk_store = open_disk_store(settings)
        if disk_store is not None:
            closing.push_async_callback(disk_store.close)
        traces = open_traces(settings, application)
        if traces is not None:
            closing.push_async_callback(traces.close)
        pod_streams = open_pod_streams(settings)
        closing.push_async_callback(pod_streams.close)
        if wait_s is None:
            # Without a database nothing can be due.
            with suppress(DatabaseUnavailableError):
                await clock.begin()
        else:
            await wait_for_start(partial(_begin, clock, engine), longest_s=wait_s)
        wakeups = PostgresWakeups(url, application)
        loops = Loops(clock.now)
        hearing = loops["wake_ups"]
        await closing.enter_async_context(
            beside(hearing.keep(lambda: wakeups.run(hearing.note_success)), name="wake-ups")
        )
        keeping_time = loops["clock"].repeat(clock.ask_next, longest_s=ASK_EVERY_S)
        await closing.enter_async_context(beside(keeping_time, name="clock"))
        client = await open_client(engine)
        uow = UnitOfWorkFactory(engine, client, wakeups, clock, sealing)
        yield Runtime(
            uow, wakeups, clock, RandomIds(), cluster, pod_streams, loops, steps=clock, gpu_sampler=gpu_sampler,
            disk_store=disk_store, traces=traces,
        )  # fmt: skip

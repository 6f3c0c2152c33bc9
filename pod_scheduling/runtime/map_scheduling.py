"""From settings to a scheduler of mapped pods that runs: cluster, lease, ledger, and whether all of it is well."""

import asyncio
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pod_scheduling.adapters.kubernetes.map_cluster import KubernetesMapCluster
from pod_scheduling.adapters.kubernetes.map_sights import SightRules
from pod_scheduling.runtime.settings.scheduler import SchedulerSettings
from pod_scheduling.usecases.maps.bind_mapped_pods import BindRules, MapScheduler
from reservation_core.adapters.clock import SystemClock
from reservation_core.adapters.kubernetes.api_server.credentials import KubeconfigError
from reservation_core.adapters.kubernetes.other_objects.event_writer import EventWriter
from reservation_core.adapters.kubernetes.other_objects.leases import Lease, LeaseRules
from reservation_core.runtime.kubernetes import open_transport
from reservation_core.runtime.lease_namespace import lease_namespace
from reservation_core.runtime.loops.loops import Loops
from reservation_core.runtime.processes.companions import beside
from reservation_core.runtime.settings.error import SettingsError

if TYPE_CHECKING:
    from pod_scheduling.runtime.reading.promised_cards import PromisedCards

_CONTROLLER = "gpu-scheduler"


@dataclass(frozen=True, slots=True)
class RunningScheduler:
    """The scheduler, its lease, who writes its Events, and how its loops go."""

    scheduler: MapScheduler
    lease: Lease
    events: EventWriter
    loops: Loops


@asynccontextmanager
async def run_map_scheduler(settings: SchedulerSettings) -> AsyncIterator[RunningScheduler]:
    """A scheduler that follows the cluster, and binds while it has the lease, as long as the block runs.

    Raises SettingsError for a kubeconfig that can't be used.
    """
    rules, loops = settings.scheduler, Loops()
    try:
        transport = open_transport(settings)
    except KubeconfigError as error:
        raise SettingsError(str(error)) from error
    clock = SystemClock()
    identity = f"{socket.gethostname()}_{secrets.token_hex(6)}"
    events = EventWriter(
        transport, clock, _CONTROLLER, f"{_CONTROLLER}-{socket.gethostname()}", per_s=rules.events_per_s
    )
    sights = SightRules(rules.name, settings.kubernetes.namespace, settings.gpu.resource_names, rules.enforced_label)
    lease = Lease(
        transport, clock, lease_namespace(rules.lease_namespace), rules.lease_name, identity,
        LeaseRules(rules.lease_s, rules.renew_within_s, rules.retry_s),
    )  # fmt: skip
    async with AsyncExitStack() as closing:
        closing.push_async_callback(transport.close)
        promised = await closing.enter_async_context(_open_ledger(settings))
        scheduler = MapScheduler(
            KubernetesMapCluster(transport, sights, events, clock),
            BindRules(rules.overlap, rules.node_label, rules.parallel),
            lambda: lease.left_s() if promised is None or promised.known() else 0.0,
        )
        if promised is not None:
            reading = promised.keep(loops["promised_cards"], scheduler.reserve, scheduler.requeue_all)
            await closing.enter_async_context(beside(reading, name="promised cards"))
        await closing.enter_async_context(beside(loops.keep("events", events.run), name="events"))
        keeping = loops.keep("lease", partial(lease.keep, scheduler.lead, lambda: scheduler.settled))
        await closing.enter_async_context(beside(keeping, name="lease"))
        sweeping = loops.keep("sweep", partial(_sweep, scheduler, rules.sweep_s))
        await closing.enter_async_context(beside(sweeping, name="sweep"))
        await closing.enter_async_context(beside(scheduler.run(loops.keep), name="scheduler"))
        closing.push_async_callback(scheduler.settle)
        yield RunningScheduler(scheduler, lease, events, loops)


@asynccontextmanager
async def _open_ledger(settings: SchedulerSettings) -> "AsyncIterator[PromisedCards | None]":
    """The ledger's promised cards, where there is a database."""
    if settings.database_url is None:
        yield None
        return
    # Loaded only where it is wanted: the database's libraries take 30 MB.
    from pod_scheduling.runtime.reading.promised_cards import PromisedCards  # noqa: PLC0415
    from reservation_core.adapters.postgres.connection.engine import open_engine  # noqa: PLC0415
    from reservation_core.runtime.database_urls import database_url_of  # noqa: PLC0415
    from reservation_core.runtime.reading.repeated_reading import LEDGER_STATEMENT_S  # noqa: PLC0415

    engine = open_engine(database_url_of(settings), pool=1, application=_CONTROLLER, statement_s=LEDGER_STATEMENT_S)
    try:
        yield PromisedCards(engine, settings.scheduler.ledger_s, settings.scheduler.ledger_patience_s)
    finally:
        await engine.dispose()


async def _sweep(scheduler: MapScheduler, every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        scheduler.requeue_all()

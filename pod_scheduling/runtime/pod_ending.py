"""From settings to one who ends pods that people made: once, or again and again while it has the lease."""

import asyncio
import secrets
import socket
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict
from datetime import timedelta
from functools import partial

import structlog

from pod_scheduling.adapters.kubernetes.guarded_pods import GuardRules, KubernetesGuardedPods
from reservation_core.adapters.clock import SystemClock
from reservation_core.adapters.kubernetes.api_server.credentials import KubeconfigError
from reservation_core.adapters.kubernetes.api_server.retries import Transport
from reservation_core.adapters.kubernetes.other_objects.event_writer import EventWriter
from reservation_core.adapters.kubernetes.other_objects.leases import Lease, LeaseRules
from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.domain.cards.gpu_types import TypeNames
from reservation_core.domain.pods.pod_endings import EndRules, GuardedPod
from reservation_core.runtime.kubernetes import open_transport
from reservation_core.runtime.lease_namespace import lease_namespace
from reservation_core.runtime.loops.loops import Loop, Loops
from reservation_core.runtime.processes.companions import beside
from reservation_core.runtime.settings.components import ExpirySettings
from reservation_core.runtime.settings.error import SettingsError
from reservation_core.usecases.pods.end_pods import PodEnder, PodEndReport, PodEndRules

_CONTROLLER = "reservation-expiry"
_LEASE = "gpu-dev-pod-ending"
_SHORTEST_S = 0.5
"""Between two looks, however much changes."""

_log = structlog.get_logger(__name__)


async def end_pods_once(uow: UnitOfWorkFactory, settings: ExpirySettings) -> PodEndReport:
    """Check all pods once, and end those that are due.

    Raises SettingsError, ClusterUnavailableError and DatabaseUnavailableError.
    """
    transport = _transport(settings)
    try:
        pods = _pods(transport, settings, _events(transport, settings))
        ender = PodEnder(uow, pods, _rules(settings))
        await ender.begin()
        report = _log_report(await ender.run(await pods.list_pods()))
        await pods.write_events()
    finally:
        await transport.close()
    return report


async def keep_ending_pods(uow: UnitOfWorkFactory, settings: ExpirySettings, stop: asyncio.Event, loops: Loops) -> None:
    """Follow all pods and end those that are due, with the lease, until `stop` is set. Raises SettingsError."""
    rules, transport = settings.enforcement, _transport(settings)
    async with AsyncExitStack() as closing:
        closing.push_async_callback(transport.close)
        events = _events(transport, settings)
        pods = _pods(transport, settings, events)
        lease = Lease(
            transport, SystemClock(), lease_namespace(rules.lease_namespace), _LEASE,
            f"{socket.gethostname()}_{secrets.token_hex(6)}",
            LeaseRules(rules.lease_s, rules.renew_within_s, rules.retry_s),
        )  # fmt: skip
        watching = _Watching(PodEnder(uow, pods, _rules(settings)), lease, rules.look_s, loops["ending_pods"])
        await closing.enter_async_context(beside(loops.keep("events", events.run), name="events"))
        keeping = loops.keep("pod_ending_lease", partial(lease.keep, watching.wake, lambda: True))
        await closing.enter_async_context(beside(keeping, name="lease"))
        await closing.enter_async_context(beside(watching.run(pods), name="ending pods"))
        await stop.wait()


class _Watching:
    """Looks when something has changed, and every `look_s` in any case: bookings change, and time passes."""

    def __init__(self, ender: PodEnder, lease: Lease, look_s: float, loop: Loop) -> None:
        self._ender = ender
        self._lease = lease
        self._look_s = look_s
        self._loop = loop
        self._soon = asyncio.Event()
        self._pods: Mapping[str, GuardedPod] | None = None

    def wake(self) -> None:
        self._soon.set()

    async def run(self, pods: KubernetesGuardedPods) -> None:
        """Until cancelled. A new lease holder lists everything anew: pods gone before must be missed."""

        async def once() -> None:
            await self._rest()
            if not self._lease.holds():
                return
            await self._ender.begin()
            self._pods = None
            async with beside(pods.follow(self._show), name="following pods"):
                while self._lease.holds():
                    await self._end_due_pods()
                    await self._rest()

        await self._loop.repeat(once)

    async def _rest(self) -> None:
        await asyncio.sleep(_SHORTEST_S)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._soon.wait(), self._look_s)
        self._soon.clear()

    def _show(self, pods: Mapping[str, GuardedPod]) -> None:
        self._pods = pods
        self._soon.set()

    async def _end_due_pods(self) -> None:
        if self._pods is None:
            return
        try:
            _log_report(await self._ender.run(dict(self._pods)))
        except Exception as error:  # noqa: BLE001 - the next look tries again, on pods that are followed on
            self._loop.failed(error)
        else:
            self._loop.note_success()


def _log_report(report: PodEndReport) -> PodEndReport:
    if report != PodEndReport():
        _log.info("pods ended", **asdict(report))
    return report


def _transport(settings: ExpirySettings) -> Transport:
    try:
        return open_transport(settings)
    except KubeconfigError as error:
        raise SettingsError(str(error)) from error


def _events(transport: Transport, settings: ExpirySettings) -> EventWriter:
    instance = f"{_CONTROLLER}-{socket.gethostname()}"
    return EventWriter(transport, SystemClock(), _CONTROLLER, instance, per_s=settings.enforcement.events_per_s)


def _pods(transport: Transport, settings: ExpirySettings, events: EventWriter) -> KubernetesGuardedPods:
    rules = GuardRules(
        label=settings.enforcement.namespace_label,
        jobs_namespace=settings.kubernetes.namespace,
        gpu_resources=settings.gpu.resource_names,
        type_labels=settings.gpu.type_labels,
        words=TypeNames(settings.gpu.types),
    )
    return KubernetesGuardedPods(transport, rules, events)


def _rules(settings: ExpirySettings) -> PodEndRules:
    chosen = settings.enforcement
    return PodEndRules(
        ends=EndRules(chosen.warn_before_s, timedelta(seconds=chosen.budget_patience_s), chosen.override_budgets),
        lead=timedelta(seconds=chosen.lead_s),
        grace_s=chosen.grace_s,
    )

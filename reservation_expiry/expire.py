"""One look at everything that has a time, and the watch over pods that people made."""

import asyncio
from dataclasses import asdict
from datetime import timedelta

import structlog

from reservation_core.domain.bookings.due_changes import BookingRules
from reservation_core.domain.jobs.repeated_asking import RepeatedEndRequests
from reservation_core.runtime.retention import remove_old_once
from reservation_core.runtime.settings.components import ClusterKind, ExpirySettings
from reservation_core.runtime.settings.error import SettingsError
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.bookings.keep_bookings import BookingKeeping
from reservation_core.usecases.bookings.waitlist import Waitlist
from reservation_core.usecases.history.audit_chain import chain_events
from reservation_core.usecases.history.retention import RetentionWalk
from reservation_core.usecases.keep_calendar import keep_calendar
from reservation_core.usecases.running.expire_jobs import ExpiryReport, ExpiryRules, expire

_CHAINED_BATCHES = 100
_log = structlog.get_logger(__name__)


async def run_once(
    runtime: Runtime, settings: ExpirySettings, *, watched: bool = False, asked: RepeatedEndRequests | None = None
) -> ExpiryReport:
    """Act on what is due; returns what was done.

    `watched`: somebody watches over pods that people made already. `asked`: see `expire`.
    """
    report = await expire(
        runtime.uow,
        runtime.cluster,
        runtime.clock,
        ExpiryRules(
            warn_before_s=settings.warn_before_s,
            start_allowance=settings.start_allowance,
            max_starts=settings.max_starts,
            ending_patience=timedelta(seconds=settings.ending_patience_s),
        ),
        asked,
    )
    if report.ended or report.timed_out or report.resent:
        _log.info("expired", ended=report.ended, timed_out=report.timed_out, resent=report.resent)
    if report.unknown:
        _log.warning("the cluster does not answer; late starts are not given up yet", jobs=report.unknown)
    led = await _is_led(runtime)
    if not led:
        await _keep_calendar(runtime, settings)
    if ends_pods(settings) and not watched:
        await _end_pods(runtime, settings)
    if not led:
        await _chain_events(runtime)
        await remove_old_once(runtime, settings, RetentionWalk())
    return report


def ends_pods(settings: ExpirySettings) -> bool:
    """Whether pods that people made are ended: there are such only on Kubernetes."""
    return settings.enforcement.enabled and settings.cluster is ClusterKind.KUBERNETES


async def watch(runtime: Runtime, settings: ExpirySettings, stop: asyncio.Event) -> None:
    """End pods that people made as soon as they are due, until `stop` is set. Raises SettingsError."""
    # Loaded only where it is wanted, as the cluster itself is.
    from pod_scheduling.runtime.pod_ending import keep_ending_pods  # noqa: PLC0415

    if not ends_pods(settings):
        raise SettingsError(
            "There is nothing to watch: set GPU_DEV_CLUSTER=kubernetes and GPU_DEV_ENFORCEMENT__ENABLED=true"
        )
    await keep_ending_pods(runtime.uow, settings, stop, runtime.loops)


async def _end_pods(runtime: Runtime, settings: ExpirySettings) -> None:
    """After the calendar: bookings that are over end their pods in the same look."""
    from pod_scheduling.runtime.pod_ending import end_pods_once  # noqa: PLC0415

    await end_pods_once(runtime.uow, settings)


async def _chain_events(runtime: Runtime) -> None:
    """Some batches of the audit log: what is left waits for the next run, and is not removed before."""
    for _ in range(_CHAINED_BATCHES):
        if not await chain_events(runtime.uow):
            return


async def _is_led(runtime: Runtime) -> bool:
    """Whether somebody leads, who keeps the calendar and removes what is old all the time."""
    async with runtime.uow(one_statement=True) as uow:
        return await uow.calendar_due.is_led()


async def _keep_calendar(runtime: Runtime, settings: ExpirySettings) -> None:
    """After the jobs: what ends with its job leaves its booking in order."""
    keeping = BookingKeeping(BookingRules(settings.starting_soon_s, settings.ending_soon_s), settings.no_show_grace)
    waitlist = Waitlist(runtime.uow, runtime.ids, settings.offer)
    report = await keep_calendar(runtime.uow, runtime.ids, keeping, waitlist)
    if report:
        _log.info("calendar", **asdict(report))

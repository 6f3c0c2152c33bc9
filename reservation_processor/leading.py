"""Leadership: one processor at a time holds the lease, plans, follows pods and resyncs; the others stand by."""

import asyncio
import os
import secrets
import socket
from collections.abc import Awaitable, Callable
from datetime import timedelta

import structlog

from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.planning import LostLeadershipError
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.ports.wakeups import Channel, Subscription
from reservation_core.runtime.settings import ProcessorSettings
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.plan_and_allocate import Planner, PlannerRules
from reservation_core.usecases.resync import Resync, ResyncRules
from reservation_processor.belts import BELT
from reservation_processor.following import follow

_log = structlog.get_logger(__name__)
_MESSAGES = 1000
_CONFLICT_PAUSE_S = 0.05


async def lead(runtime: Runtime, settings: ProcessorSettings, stop: asyncio.Event) -> None:
    """Become the leader whenever nobody is, until `stop`."""
    holder = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
    ttl = timedelta(seconds=settings.lease_s)
    while not stop.is_set():
        try:
            async with runtime.uow() as uow:
                epoch = await uow.planning.acquire(holder, ttl)
        except DatabaseUnavailableError as error:
            _log.warning("the database is not available; trying again", error=str(error))
            epoch = None
        if epoch is None:
            await _pause(stop, settings.lease_s / 4)
            continue
        _log.info("leading", epoch=epoch)
        try:
            await _term(runtime, settings, epoch, ttl, stop)
        except* LostLeadershipError:
            _log.warning("another processor leads now", epoch=epoch)


async def _term(runtime: Runtime, settings: ProcessorSettings, epoch: int, ttl: timedelta, stop: asyncio.Event) -> None:
    """One term of office: ends with `stop`, or with LostLeadershipError in a group."""
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_plan(runtime, settings, epoch), name="planner"),
            group.create_task(_forever(lambda: follow(runtime, settings.max_starts)), name="follower"),
            group.create_task(_resync(runtime, settings), name="resync"),
            group.create_task(_renew(runtime, epoch, ttl), name="lease"),
        ]
        await stop.wait()
        for task in tasks:
            task.cancel()
    try:
        async with runtime.uow() as uow:
            await uow.planning.release(epoch)
    except DatabaseUnavailableError as error:
        _log.warning("the lease runs out by itself", error=str(error))


async def _plan(runtime: Runtime, settings: ProcessorSettings, epoch: int) -> None:
    planner = Planner(
        runtime.uow,
        runtime.clock,
        epoch,
        PlannerRules(
            start_allowance=settings.start_allowance,
            window=settings.plan_window,
            batch=settings.plan_batch,
            messages=_MESSAGES,
            estimates=settings.estimates,
            estimate_every=timedelta(seconds=settings.estimate_s),
            reload_every=timedelta(seconds=settings.reload_s),
            visibility=timedelta(seconds=settings.visibility_s),
            max_reads=settings.max_reads,
        ),
    )
    async with runtime.wakeups.subscribe(Channel.GPU_JOBS) as subscription:
        await _forever(lambda: _plan_once(planner, subscription, timedelta(seconds=settings.sweep_s)))


async def _plan_once(planner: Planner, subscription: Subscription, sweep: timedelta) -> None:
    outcome = await planner.cycle()
    if outcome.conflict:
        _log.warning("the ledger refused a plan; planning anew")
        await asyncio.sleep(_CONFLICT_PAUSE_S)
    await planner.publish_estimates()
    if not outcome.more:
        await subscription.wait(sweep)


async def _resync(runtime: Runtime, settings: ProcessorSettings) -> None:
    rules = ResyncRules(
        starting_patience=timedelta(seconds=settings.resync_s),
        ending_patience=timedelta(seconds=settings.end_grace_s + settings.resync_s),
        grace=settings.end_grace,
        belt=BELT,
        max_starts=settings.max_starts,
    )
    comparison = Resync(runtime.uow, runtime.cluster, runtime.clock, rules)

    async def once() -> None:
        report = await comparison.once()
        if report.resent or report.orphans:
            _log.warning("repaired", resent=report.resent, orphans=report.orphans)
        await asyncio.sleep(settings.resync_s)

    await _forever(once)


async def _renew(runtime: Runtime, epoch: int, ttl: timedelta) -> None:
    async def once() -> None:
        await asyncio.sleep(ttl.total_seconds() / 3)
        async with runtime.uow() as uow:
            if not await uow.planning.renew(epoch, ttl):
                raise LostLeadershipError(f"epoch {epoch} is over")

    await _forever(once)


async def _forever(step: Callable[[], Awaitable[None]]) -> None:
    """Repeat; what the database or the cluster can't do now is tried again, all else travels."""
    while True:
        try:
            await step()
        except* (DatabaseUnavailableError, ClusterUnavailableError) as errors:
            _log.warning("not now; trying again", error=str(errors.exceptions[0]))
            await asyncio.sleep(0.5)


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    """Wait, but not past `stop`."""
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return

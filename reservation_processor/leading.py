"""Leadership: one processor at a time holds the lease, plans, follows pods, ends jobs, resyncs, keeps the calendar."""

import asyncio
import os
import secrets
import socket
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta

import structlog

from reservation_core.domain.asked_again import AskedAgain
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.planning import LostLeadershipError
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.ports.wakeups import Channel, Subscription
from reservation_core.runtime.backoff import Backoff
from reservation_core.runtime.companions import beside
from reservation_core.runtime.settings import ProcessorSettings, UnknownPods
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.plan_and_allocate import Planner, PlannerRules
from reservation_core.usecases.resync import Resync, ResyncReport, ResyncRules
from reservation_core.usecases.usage import share_ranks
from reservation_processor.belts import BELT
from reservation_processor.calendar_keeping import look, sum_up, waitlist_of
from reservation_processor.ending import end_on_time, repair
from reservation_processor.following import follow

_log = structlog.get_logger(__name__)
_MESSAGES = 1000
_CONFLICT_PAUSE_S = 0.05
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 5.0


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
            await pause(stop, settings.lease_s / 4)
            continue
        _log.info("leading", epoch=epoch)
        try:
            await _term(runtime, settings, epoch, ttl, stop)
        except* LostLeadershipError:
            _log.warning("another processor leads now", epoch=epoch)


async def _term(runtime: Runtime, settings: ProcessorSettings, epoch: int, ttl: timedelta, stop: asyncio.Event) -> None:
    """One term of office: ends with `stop`, or with LostLeadershipError in a group."""
    comparison = resync_of(runtime, settings)
    waitlist = waitlist_of(runtime, settings)
    asked = AskedAgain(timedelta(seconds=settings.ending_patience_s))
    accounted = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_plan(runtime, settings, epoch, accounted), name="planner"),
            group.create_task(
                forever(lambda: follow(runtime, settings.max_starts, settings.turnaround)), name="follower"
            ),
            group.create_task(_resync(runtime, settings, comparison, accounted), name="resync"),
            group.create_task(forever(lambda: end_on_time(runtime, settings)), name="ends"),
            group.create_task(forever(lambda: repair(runtime, settings, asked)), name="repair"),
            group.create_task(forever(lambda: look(runtime, settings, waitlist)), name="calendar"),
            group.create_task(forever(lambda: sum_up(runtime)), name="sums"),
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


async def _plan(runtime: Runtime, settings: ProcessorSettings, epoch: int, accounted: asyncio.Event) -> None:
    # A ledger that was restored from a backup takes cards for free that pods hold: first see what there is.
    await accounted.wait()
    planner = Planner(
        runtime.uow,
        runtime.clock,
        epoch,
        PlannerRules(
            # Who starts as late as that still ends, and is gone, before what comes next.
            start_allowance=settings.start_allowance + settings.turnaround,
            window=settings.plan_window,
            batch=settings.plan_batch,
            messages=_MESSAGES,
            estimates=settings.estimates,
            estimate_every=timedelta(seconds=settings.estimate_s),
            reload_every=timedelta(seconds=settings.reload_s),
            visibility=timedelta(seconds=settings.visibility_s),
            max_reads=settings.max_reads,
            promises=settings.promises,
            slot_batch=settings.slot_batch,
            slot_batches=settings.slot_batches,
            slot_time=timedelta(seconds=settings.slot_s),
            policy=settings.placement.policy,
        ),
    )
    async with runtime.wakeups.subscribe(Channel.GPU_JOBS) as subscription, AsyncExitStack() as beside_it:
        if settings.fair_share_half_life_s:
            await beside_it.enter_async_context(beside(_share(runtime, settings, planner), name="fair shares"))
        await forever(lambda: _plan_once(planner, subscription, timedelta(seconds=settings.sweep_s)))


async def _share(runtime: Runtime, settings: ProcessorSettings, planner: Planner) -> None:
    """Keep count of what everybody was given, for the order of equals; planning does not wait for it."""
    half_life = timedelta(seconds=settings.fair_share_half_life_s)

    async def once() -> None:
        planner.set_shares(await share_ranks(runtime.uow, half_life, runtime.clock.now()))
        await asyncio.sleep(settings.fair_share_every_s)

    await forever(once)


async def _plan_once(planner: Planner, subscription: Subscription, sweep: timedelta) -> None:
    outcome = await planner.cycle()
    if outcome.conflict:
        _log.warning("the ledger refused a plan; planning anew")
        await asyncio.sleep(_CONFLICT_PAUSE_S)
    more_slots = await planner.give_slots()
    await planner.publish_estimates()
    if not (outcome.more or more_slots):
        await subscription.wait(sweep)


def resync_of(runtime: Runtime, settings: ProcessorSettings) -> Resync:
    """What compares rows with pods, with these settings."""
    every = settings.resync_every
    rules = ResyncRules(
        starting_patience=every,
        ending_patience=settings.end_grace + every,
        grace=settings.end_grace,
        belt=BELT,
        max_starts=settings.max_starts,
        end_unknown=settings.unknown_pods is UnknownPods.END,
    )
    return Resync(runtime.uow, runtime.cluster, runtime.clock, rules)


async def _resync(runtime: Runtime, settings: ProcessorSettings, comparison: Resync, accounted: asyncio.Event) -> None:
    async with runtime.wakeups.subscribe(Channel.RESYNC) as subscription:

        async def once() -> None:
            if not accounted.is_set():
                tell(await comparison.account())
                accounted.set()
            tell(await comparison.once())
            await subscription.wait(settings.resync_every)

        await forever(once)


def tell(report: ResyncReport) -> None:
    """Say what was out of step, if anything was."""
    if report.unknown:
        _log.warning("there are pods that the ledger does not know; see `gpu-dev pods`", pods=report.unknown)
    if report.resent or report.orphans or report.adopted or report.cut_off:
        _log.warning(
            "repaired",
            resent=report.resent,
            orphans=report.orphans,
            adopted=report.adopted,
            cut_off=report.cut_off,
        )


async def _renew(runtime: Runtime, epoch: int, ttl: timedelta) -> None:
    async def once() -> None:
        await asyncio.sleep(ttl.total_seconds() / 3)
        async with runtime.uow() as uow:
            if not await uow.planning.renew(epoch, ttl):
                raise LostLeadershipError(f"epoch {epoch} is over")

    # Whoever waits longer than this before the next try has lost the lease by then.
    await forever(once, longest_s=ttl.total_seconds() / 3)


async def forever(step: Callable[[], Awaitable[None]], *, longest_s: float = LONGEST_PAUSE_S) -> None:
    """Repeat; what the database or the cluster can't do now is tried again after a growing pause, all else travels.

    A step that went well, or for longer than `longest_s`, lets the pauses begin with the shortest again. A task that
    was cancelled ends, also when its step told that as an error: a group of tasks does if one of them fails then.
    """
    backoff = Backoff(FIRST_PAUSE_S, longest_s)
    clock = asyncio.get_running_loop().time
    task = asyncio.current_task()
    while task is None or not task.cancelling():
        begun = clock()
        again_s: float | None = None
        try:
            await step()
        except* (DatabaseUnavailableError, ClusterUnavailableError) as errors:
            if clock() - begun > longest_s:
                backoff.reset()
            again_s = backoff.next()
            _log.warning("not now; trying again", error=str(errors.exceptions[0]), again_s=round(again_s, 1))
        if again_s is None:
            backoff.reset()
        elif task is None or not task.cancelling():
            # Not above: a cancellation there would come out in a group, as if it were an error.
            await asyncio.sleep(again_s)
    raise asyncio.CancelledError


async def pause(stop: asyncio.Event, seconds: float) -> None:
    """Wait, but not past `stop`."""
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return

"""Leadership: one processor at a time holds the lease, plans, follows pods, ends jobs, resyncs, keeps the calendar."""

import asyncio
import os
import secrets
import socket
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from datetime import timedelta

import structlog

from reservation_core.domain.jobs.repeated_asking import RepeatedEndRequests
from reservation_core.domain.planning.predictions.start_predictor import StartPredictor
from reservation_core.ports.planning.planning import LostLeadershipError
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.ports.wakeups import Channel, Subscription
from reservation_core.runtime.loops.loops import PATIENCE_S, Loop
from reservation_core.runtime.processes.companions import beside
from reservation_core.runtime.retention import remove_old_once
from reservation_core.runtime.settings.components import ProcessorSettings, UnknownPodRule
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.history.retention import RetentionWalk
from reservation_core.usecases.people.user_secrets import reseal_secrets
from reservation_core.usecases.planning.planner import Planner, PlannerRules
from reservation_core.usecases.planning.start_predictions import StartPredictions
from reservation_core.usecases.policy.usage import share_ranks
from reservation_core.usecases.running.resync import Resync, ResyncReport, ResyncRules
from reservation_processor.arrays import keep_arrays
from reservation_processor.audit_chaining import keep_chaining
from reservation_processor.belts import BELT
from reservation_processor.calendar_keeping import CALENDAR_EVERY_S, SUM_UP_EVERY_S, keep_once, sum_up, waitlist_of
from reservation_processor.dependants import keep_settling
from reservation_processor.disks.keeping import keep_disks
from reservation_processor.ending import end_on_time, repair
from reservation_processor.following import follow
from reservation_processor.health import watch_health
from reservation_processor.idling import watch_idle
from reservation_processor.preempting import keep_preempting
from reservation_processor.sampling import keep_sampling

RESEAL_EVERY_S = 60.0
_log = structlog.get_logger(__name__)
_MESSAGES = 1000
_CONFLICT_PAUSE_S = 0.05
_RESTS = 20
"""The rest after a removal of old rows, in multiples of its duration."""
_LONGEST_REST_S = PATIENCE_S / 2
_END = (LostLeadershipError,)
"""Errors that end a term; all others are retried."""


async def lead(runtime: Runtime, settings: ProcessorSettings, stop: asyncio.Event) -> None:
    """Take the lease whenever it is free, until `stop`."""
    holder = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
    ttl = timedelta(seconds=settings.lease_s)
    leadership = runtime.loops["leadership"]

    async def once() -> None:
        async with runtime.uow() as uow:
            epoch = await uow.planning.acquire(holder, ttl)
        leadership.note_success()
        if epoch is None:
            await pause(stop, settings.lease_s / 4)
            return
        _log.info("leading", epoch=epoch)
        try:
            async with runtime.leading(epoch):
                await _term(runtime, settings, epoch, ttl, stop)
        except* LostLeadershipError:
            _log.warning("another processor has taken the lease over", epoch=epoch)

    await leadership.repeat(once, longest_s=settings.lease_s / 4, stop=stop)


async def _term(runtime: Runtime, settings: ProcessorSettings, epoch: int, ttl: timedelta, stop: asyncio.Event) -> None:
    """Hold the lease for one term: it ends with `stop`, or with LostLeadershipError in a group."""
    comparison = resync_of(runtime, settings)
    waitlist = waitlist_of(runtime, settings)
    asked = RepeatedEndRequests(timedelta(seconds=settings.ending_patience_s))
    accounted = asyncio.Event()
    loops = runtime.loops

    def follow_pods() -> Awaitable[None]:
        return follow(runtime, settings.max_starts, settings.turnaround)

    def keep_calendar() -> Awaitable[None]:
        return keep_once(runtime, settings, waitlist)

    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_plan(runtime, settings, epoch, accounted), name="planner"),
            group.create_task(loops["follower"].keep(follow_pods), name="follower"),
            group.create_task(_resync(runtime, settings, comparison, accounted), name="resync"),
            group.create_task(loops["ends"].repeat(lambda: end_on_time(runtime, settings)), name="ends"),
            group.create_task(loops["repair"].repeat(lambda: repair(runtime, settings, asked)), name="repair"),
            group.create_task(
                loops["calendar"].repeat(keep_calendar, rest_s=CALENDAR_EVERY_S, ends=_END), name="calendar"
            ),
            group.create_task(loops["usage_sums"].repeat(lambda: sum_up(runtime), rest_s=SUM_UP_EVERY_S), name="sums"),
            group.create_task(keep_chaining(runtime), name="audit chain"),
            group.create_task(
                loops["secret_keys"].repeat(lambda: _reseal(runtime), rest_s=RESEAL_EVERY_S), name="secret keys"
            ),
            group.create_task(keep_settling(runtime, settings), name="dependencies"),
            group.create_task(keep_arrays(runtime, settings), name="arrays"),
            group.create_task(keep_disks(runtime, settings), name="disks"),
            group.create_task(keep_preempting(runtime, settings), name="preemption"),
            group.create_task(_remove_old(runtime, settings), name="retention"),
            group.create_task(keep_sampling(runtime, settings), name="gpu use"),
            group.create_task(watch_idle(runtime, settings), name="idle"),
            group.create_task(watch_health(runtime, settings), name="gpu health"),
            group.create_task(_renew(runtime, epoch, ttl), name="lease"),
        ]
        await stop.wait()
        for task in tasks:
            task.cancel()
    try:
        async with runtime.uow() as uow:
            await uow.planning.release(epoch)
    except DatabaseUnavailableError as error:
        _log.warning("the lease was not given back; it expires by itself", error=str(error))


async def _reseal(runtime: Runtime) -> None:
    """Seal secrets of former keys with the first one; processes that restart later may still use a former key."""
    read, unread = await reseal_secrets(runtime.uow)
    if read > unread:
        _log.info("secrets of former keys were sealed with the first key", secrets=read - unread, unreadable=unread)


async def _plan(runtime: Runtime, settings: ProcessorSettings, epoch: int, accounted: asyncio.Event) -> None:
    # A ledger restored from a backup shows GPUs as free that pods hold: list the pods first.
    await accounted.wait()
    # A job that starts as late as that still ends, and is gone, before what comes next.
    allowance = settings.start_allowance + settings.turnaround
    planner = Planner(
        runtime.uow,
        runtime.clock,
        epoch,
        PlannerRules(
            start_allowance=allowance,
            window=settings.plan_window,
            batch=settings.plan_batch,
            messages=_MESSAGES,
            estimates=settings.estimates,
            estimate_every=timedelta(seconds=settings.estimate_s),
            reload_every=timedelta(seconds=settings.reload_s),
            max_reads=settings.max_reads,
            promises=settings.promises,
            slack=timedelta(seconds=settings.promise_slack_s),
            slot_batch=settings.slot_batch,
            slot_batches=settings.slot_batches,
            slot_time=timedelta(seconds=settings.slot_s),
            policy=settings.placement.policy,
        ),
    )
    loop = runtime.loops["planner"]
    planner.predictions = StartPredictions(
        runtime.uow, StartPredictor(allowance), lambda error: _note_unpredicted(loop, error)
    )
    async with runtime.wakeups.subscribe(Channel.GPU_JOBS) as subscription, AsyncExitStack() as beside_it:
        if settings.fair_share_half_life_s:
            await beside_it.enter_async_context(beside(_share(runtime, settings, planner), name="fair shares"))
        sweep = timedelta(seconds=settings.sweep_s)
        await loop.repeat(lambda: _plan_once(planner, loop, subscription, sweep), ends=_END)


async def _remove_old(runtime: Runtime, settings: ProcessorSettings) -> None:
    """Remove old rows as often as the settings say, but for no more than a twentieth of the time while that succeeds.

    After a failure it is tried again before the process counts as failed.
    """
    walk = RetentionWalk()
    clock = asyncio.get_running_loop().time
    rest_s = 0.0

    async def once() -> None:
        nonlocal rest_s
        await asyncio.sleep(rest_s)  # before the removal: its result is known at once, and not when the rest is over
        begun = clock()
        try:
            await remove_old_once(runtime, settings, walk)
        except Exception:
            rest_s = min(_LONGEST_REST_S, _RESTS * (clock() - begun))
            raise
        rest_s = max(settings.retention.look_s, _RESTS * (clock() - begun))

    await runtime.loops["retention"].repeat(once)


async def _share(runtime: Runtime, settings: ProcessorSettings, planner: Planner) -> None:
    """Keep the sums of past usage, which order equal priorities; planning does not wait for them."""
    half_life = timedelta(seconds=settings.fair_share_half_life_s)

    async def once() -> None:
        planner.set_shares(await share_ranks(runtime.uow, half_life, runtime.clock.now()))

    await runtime.loops["fair_shares"].repeat(once, rest_s=settings.fair_share_every_s)


def _note_unpredicted(loop: Loop, error: Exception) -> None:
    """Count and log that the predictor failed: the planner goes on without predictions."""
    loop.failures += 1
    _log.error("starts are not predicted; trying again", exc_info=error)


async def _plan_once(planner: Planner, loop: Loop, subscription: Subscription, sweep: timedelta) -> None:
    try:
        outcome = await planner.cycle()
        if outcome.conflict:
            _log.warning("the ledger refused a plan; planning anew")
            await asyncio.sleep(_CONFLICT_PAUSE_S)
        more_slots = await planner.give_slots()
        await planner.publish_estimates()
    except Exception:
        # The picture may hold decisions that were never written, or have caused the failure.
        planner.read_anew()
        raise
    loop.note_success()
    if not (outcome.more or more_slots):
        await subscription.wait(sweep)


def resync_of(runtime: Runtime, settings: ProcessorSettings) -> Resync:
    """Build the resync, which compares rows with pods."""
    every = settings.resync_every
    rules = ResyncRules(
        starting_patience=every,
        ending_patience=settings.end_grace + every,
        grace=settings.end_grace,
        belt=BELT,
        max_starts=settings.max_starts,
        end_unknown=settings.unknown_pods is UnknownPodRule.END,
    )
    return Resync(runtime.uow, runtime.cluster, runtime.clock, rules, runtime.traces)


async def _resync(runtime: Runtime, settings: ProcessorSettings, comparison: Resync, accounted: asyncio.Event) -> None:
    loop = runtime.loops["resync"]
    async with runtime.wakeups.subscribe(Channel.RESYNC) as subscription:

        async def once() -> None:
            if not accounted.is_set():
                log_differences(await comparison.account())
                accounted.set()
            log_differences(await comparison.once())
            loop.note_success()
            await subscription.wait(settings.resync_every)

        await loop.repeat(once, ends=_END)


def log_differences(report: ResyncReport) -> None:
    """Log the differences that a resync found, if any."""
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
        async with runtime.uow() as uow:
            if not await uow.planning.renew(epoch, ttl):
                raise LostLeadershipError(f"epoch {epoch} is over")

    # A process that waits longer than this before the next try has lost the lease by then.
    third_s = ttl.total_seconds() / 3
    await runtime.loops["lease"].repeat(once, rest_s=third_s, rests_first=True, longest_s=third_s, ends=_END)


async def pause(stop: asyncio.Event, seconds: float) -> None:
    """Wait, but not past `stop`."""
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return

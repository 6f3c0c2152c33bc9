"""`kill -9` of the processor at every step of a job's way; a normal one then brings everything to its true end.

Beside the jobs there are bookings, a quota that is asked for too much, extensions and cancels: see `calendar_life`.
"""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from reservation_core.domain.statuses import JobStatus
from tests.faults.systems import calendar_life
from tests.faults.systems.calendar_life import CalendarLife
from tests.faults.systems.crashing_processor import LAST_WORDS
from tests.faults.systems.invariants import assert_never_doubled, assert_nothing_left, left_over, outcomes
from tests.faults.systems.system import QUICK, System
from tests.waiting import eventually

# Named moments, and the how manieth of its kind: not always the first, so that others are half way then.
MOMENTS = {
    "after_read_jobs": ("after read of gpu_jobs committed", 1),
    "before_plan_commit": ("before plan committed", 1),
    "after_plan_commit": ("after plan committed", 1),
    "after_read_operations": ("after read of pod_operations committed", 2),
    "before_pod_create": ("before create_pod", 2),
    "after_pod_create": ("after create_pod", 3),
    "before_observe_running": ("before running committed", 2),
    "after_observe_running": ("after running committed", 2),
    "before_observe_end": ("before ending committed", 1),
    "after_observe_end": ("after ending committed", 2),
    "before_pod_delete": ("before delete_pod", 2),
    "during_pod_delete": ("after delete_pod", 2),
    "before_close": ("before close committed", 2),
    "after_close": ("after close committed", 2),
}
CONVERGES_WITHIN_S = 180
AS_DELIVERED: dict[str, object] = dict.fromkeys(QUICK)


@dataclass(frozen=True, slots=True)
class Jobs:
    """What was acknowledged, and how each has to end."""

    expected: dict[str, tuple[JobStatus, int | None]]
    short: frozenset[str]
    cancelled: str
    calendar: CalendarLife


async def submit_some(system: System) -> Jobs:
    """Short ones (good, bad, a gang), one to be cancelled, one to expire, one that waits for the others' GPUs."""
    records = system.records
    ids = await system.submit(
        system.new(records.workload()),
        system.new(records.workload(3, work="sleep 0.3"), gpus=2),
        system.new(records.workload(work="sleep 0.3"), gpus=1, nodes=2),
        system.new(records.workload(5, work="sleep 1.5")),
        system.new(records.workload(work="sleep 600", stubborn_s=0.3)),
        system.new(records.workload(work="sleep 600"), duration=2),
        system.new(records.workload(), gpus=4),
    )
    good, bad, gang, long, cancelled, expiring, waiting = ids
    done, failed = JobStatus.SUCCEEDED, JobStatus.FAILED
    expected = {
        good: (done, 0), bad: (failed, 3), gang: (done, 0), long: (failed, 5), waiting: (done, 0),
        cancelled: (JobStatus.CANCELLED, None), expiring: (JobStatus.EXPIRED, None),
    }  # fmt: skip
    calendar = await calendar_life.begin(system)
    await calendar_life.extended(system, calendar, waiting)
    expected |= dict.fromkeys(calendar.quota_jobs, (done, 0))
    return Jobs(expected, frozenset({good, bad, gang, long, waiting, *calendar.quota_jobs}), cancelled, calendar)


async def go_on(system: System, jobs: Jobs) -> None:
    """What users and the expiry do meanwhile: cancel what runs, end what is due."""
    await system.expire()
    await calendar_life.go_on(system, jobs.calendar)
    if await system.status(jobs.cancelled) is JobStatus.RUNNING:
        await calendar_life.extended(system, jobs.calendar, jobs.cancelled)
        await system.cancel(jobs.cancelled)


@asynccontextmanager
async def successor(system: System, *, forked: bool = True, **settings: object) -> AsyncIterator[None]:
    """A processor that lives, from when it leads: how long a busy machine takes to start a process says nothing."""
    with system.processor(forked=forked, **settings) as process:
        await eventually(lambda: process.said('"leading"'))
        yield


async def assert_converges(system: System, jobs: Jobs) -> None:
    """Every acknowledged job reaches its true end, and nothing is left."""

    async def ended() -> bool:
        await go_on(system, jobs)
        return await system.all_final() and await calendar_life.ended_within(system, jobs.calendar) is not None

    try:
        async with asyncio.timeout(CONVERGES_WITHIN_S):
            await eventually(ended, timeout=CONVERGES_WITHIN_S)
            await assert_nothing_left(system)
    except TimeoutError as late:
        raise AssertionError(f"not converged: {await left_over(system)}") from late
    seen = await outcomes(system)
    within = await calendar_life.ended_within(system, jobs.calendar)
    assert seen.keys() == {*jobs.expected, within}
    for job_id, (status, exit_code) in jobs.expected.items():
        assert seen[job_id][0] is status
        assert exit_code is None or seen[job_id][1] == exit_code
    await assert_never_doubled(system)
    await calendar_life.assert_calendar_held(system, jobs.calendar)


async def die(system: System, jobs: Jobs, moment: str, times: int, **settings: object) -> None:
    """Let a processor work until it is killed at that moment."""
    program = ("tests.faults.systems.crashing_processor", moment, str(times))
    with system.processor(program=program, **settings) as crashing:

        async def dead() -> bool:
            await go_on(system, jobs)
            return crashing.returncode() is not None

        await eventually(dead)
        assert crashing.returncode() == -signal.SIGKILL, crashing.log.read_text()
        assert crashing.said(LAST_WORDS + moment)
    # Jobs that ran then end while nobody watches.
    await eventually(lambda: not {job for job, _ in system.records.open()} & jobs.short)


@pytest.mark.parametrize("name", MOMENTS)
async def test_a_processor_killed_anywhere_loses_nothing(system: System, name: str) -> None:
    jobs = await submit_some(system)
    await die(system, jobs, *MOMENTS[name])
    async with successor(system):
        await assert_converges(system, jobs)


async def test_with_settings_as_delivered_too(system: System) -> None:
    """Messages that the dead one had read stay hidden for longer then, its lease too. The program as it is started."""
    jobs = await submit_some(system)
    await die(system, jobs, *MOMENTS["after_read_operations"], **AS_DELIVERED)
    async with successor(system, forked=False, **AS_DELIVERED):
        await assert_converges(system, jobs)


async def test_killed_again_and_again(system: System) -> None:
    """Successors die too, one at each step; jobs go on all the while."""
    jobs = await submit_some(system)
    for name in ("after_plan_commit", "after_pod_create", "after_observe_end", "before_close"):
        await die(system, jobs, MOMENTS[name][0], 1)
    async with successor(system):
        await assert_converges(system, jobs)


async def test_a_cancel_while_nobody_works_is_kept(system: System) -> None:
    """The create that was sent before must not start it any more."""
    jobs = await submit_some(system)
    await die(system, jobs, *MOMENTS["after_plan_commit"])
    assert await system.cancel(jobs.cancelled) is JobStatus.ENDING
    async with successor(system):
        await assert_converges(system, jobs)
    assert jobs.cancelled not in system.records.started()

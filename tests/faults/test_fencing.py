"""One planner at a time: a leader that is stopped, killed or asked to go loses the lead and can't act on old plans."""

import asyncio
import signal
from datetime import timedelta
from pathlib import Path

import pytest

from reservation_core.domain.statuses import JobStatus
from reservation_core.ports.planning.planning import LostLeadershipError
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.planning.planner import Planner, PlannerRules
from tests.faults.systems.invariants import assert_never_doubled, assert_nothing_left
from tests.faults.systems.system import ProcessorProcess, System
from tests.faults.systems.watched_runtime import watched
from tests.waiting import eventually

LEASE_S = 1.0
LEADING = '"event": "leading"'
_SESSIONS = """
SELECT a.pid, a.application_name, a.state, a.wait_event_type, a.wait_event, pg_blocking_pids(a.pid) AS blockers,
       now() - a.xact_start AS transaction, now() - a.state_change AS since, left(a.query, 160) AS query
FROM pg_stat_activity a WHERE a.datname = current_database() ORDER BY a.pid
"""
STEPPED_DOWN = "another processor has taken the lease over"
RULES = PlannerRules(
    start_allowance=timedelta(seconds=60),
    window=1000,
    batch=1000,
    messages=1000,
    estimates=100,
    estimate_every=timedelta(seconds=1),
    reload_every=timedelta(seconds=60),
    max_reads=5,
)


async def leads(process: ProcessorProcess, system: System | None = None) -> None:
    """Wait until this one leads. With `system`, a wait in vain tells what the database's sessions were at."""
    try:
        await eventually(lambda: process.said(LEADING))
    except AssertionError as error:
        for row in [] if system is None else await system.rows(_SESSIONS):
            error.add_note(str(tuple(row)))
        raise


async def follows(system: System, process: ProcessorProcess) -> None:
    """Wait until this one works without leading: its pod operations are carried out by it then."""

    async def connected() -> bool:
        found = await system.rows(
            "SELECT DISTINCT application_name FROM pg_stat_activity WHERE datname = current_database()"
        )
        return "reservation_processor wake-ups" in {row.application_name for row in found}

    await eventually(connected)
    assert process.returncode() is None


async def lease(system: System) -> tuple[int, str | None]:
    """The epoch, and who holds it."""
    [row] = await system.rows("SELECT epoch, holder FROM planner_lease")
    return row.epoch, row.holder


async def test_a_stopped_planner_wakes_up_too_late(system: System) -> None:
    """SIGSTOP for longer than its lease, in the middle of its work; another takes over; SIGCONT."""
    with system.processor(lease_s=LEASE_S) as first:
        await leads(first)
        epoch, _ = await lease(system)
        with system.processor(lease_s=LEASE_S) as second:
            ids = await system.submit(*(system.new(system.records.workload(work="sleep 0.1")) for _ in range(30)))
            await eventually(lambda: system.records.started())
            first.send(signal.SIGSTOP)
            await leads(second, system)
            ids += await system.submit(*(system.new(system.records.workload(), gpus=2) for _ in range(10)))
            first.send(signal.SIGCONT)
            await eventually(lambda: first.said(STEPPED_DOWN))
            for job_id in ids:
                await system.reaches(job_id, JobStatus.SUCCEEDED)
            # The present lease holder is open: on a busy machine the second, too, may have missed its second.
            assert (await lease(system))[0] > epoch
            await assert_nothing_left(system)
            assert first.returncode() is None  # stepping down is not the end
    await assert_never_doubled(system)


async def submit_one_that_waits(system: System) -> tuple[list[str], Path]:
    """A job that ends once the file is there: so it is seen to run, however late anybody looks."""
    gate = system.records.path.with_name("gate")
    work = f'until [ -e "{gate}" ]; do sleep 0.05; done'
    return await system.submit(system.new(system.records.workload(work=work))), gate


async def test_a_killed_planner_is_followed_when_its_lease_has_run_out(system: System) -> None:
    with system.processor(lease_s=LEASE_S) as first, system.processor(lease_s=LEASE_S) as second:
        await eventually(lambda: first.said(LEADING) or second.said(LEADING))
        leader, other = (first, second) if first.said(LEADING) else (second, first)
        await follows(system, other)
        epoch, _ = await lease(system)
        [job_id], gate = await submit_one_that_waits(system)
        await system.reaches(job_id, JobStatus.RUNNING)
        leader.end(signal.SIGKILL)
        gate.touch()
        await leads(other)
        assert (await lease(system))[0] > epoch
        await system.reaches(job_id, JobStatus.SUCCEEDED)
    await assert_never_doubled(system)


async def test_a_planner_that_is_asked_to_go_hands_over_at_once(system: System) -> None:
    """Its lease would last an hour: only an orderly release lets the other lead."""
    with system.processor(lease_s=3600) as first:
        await leads(first)
        # The successor asks often; what it must not have to wait for is the predecessor's lease.
        with system.processor(lease_s=LEASE_S) as second:
            await follows(system, second)
            [job_id], gate = await submit_one_that_waits(system)
            await system.reaches(job_id, JobStatus.RUNNING)
            assert first.end(signal.SIGTERM) == 0
            gate.touch()
            await leads(second)
            await system.reaches(job_id, JobStatus.SUCCEEDED)
    await assert_never_doubled(system)


async def overtaken(system: System) -> Planner:
    """A planner with a picture in memory, whose lease has been taken by somebody else."""
    async with system.runtime.uow() as uow:
        epoch = await uow.planning.acquire("first", timedelta(seconds=60))
    assert epoch is not None
    planner = Planner(system.runtime.uow, system.runtime.clock, epoch, RULES)
    await planner.cycle()
    async with system.runtime.uow() as uow:
        await uow.planning.release(epoch)
        assert await uow.planning.acquire("second", timedelta(seconds=60)) == epoch + 1
    return planner


async def test_a_plan_of_an_old_epoch_is_refused_whole(system: System) -> None:
    planner = await overtaken(system)
    [job_id] = await system.submit(system.new(system.records.workload()))
    with pytest.raises(LostLeadershipError):
        await planner.cycle()
    assert await system.status(job_id) is JobStatus.QUEUED
    assert await system.rows("SELECT 1 FROM allocations") == []


async def test_estimates_of_an_old_epoch_are_refused(system: System) -> None:
    """The planner has seen the job and would now tell it when; somebody else has taken the lead in between."""
    await system.submit(system.new(system.records.workload(), gpus=5))
    planner = await overtaken(system)
    with pytest.raises(LostLeadershipError):
        await planner.publish_estimates()
    assert await system.rows("SELECT 1 FROM wait_estimates") == []


async def test_the_lease_is_not_taken_over_while_a_plan_commits(system: System) -> None:
    """A new lease holder waits for the plan that has passed the fence, so its picture contains it."""
    passed, go_on = asyncio.Event(), asyncio.Event()

    async def hold(runtime: Runtime) -> None:
        async with runtime.uow() as uow:
            await uow.planning.commit(epoch, [], runtime.clock.now())
            passed.set()
            await go_on.wait()

    async with system.runtime.uow() as uow:
        epoch = await uow.planning.acquire("first", timedelta(seconds=60))
    assert epoch is not None
    await system.rows("UPDATE planner_lease SET expires_at = '-infinity'")
    committing = asyncio.create_task(hold(watched(system.runtime, lambda _moment: None)))
    await passed.wait()

    async def take() -> int | None:
        async with system.runtime.uow() as uow:
            return await uow.planning.acquire("second", timedelta(seconds=60))

    taking = asyncio.create_task(take())

    async def waits() -> bool:
        return bool(
            await system.rows(
                "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )
        )

    await eventually(waits)
    assert not taking.done()
    go_on.set()
    await committing
    assert await taking == epoch + 1

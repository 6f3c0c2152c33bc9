"""Clocks step by five minutes under load, forward and back: nothing ends, nothing expires early, promises hold."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from reservation_core.domain.network.clock_steps import HELD_AT_MOST
from reservation_core.domain.statuses import JobStatus
from tests.faults.systems import stepped_supervisor
from tests.faults.systems.invariants import assert_never_doubled, assert_nothing_left, outcomes
from tests.faults.systems.system import ProcessorProcess, System, open_system
from tests.shifted_time import ShiftedTime
from tests.waiting import eventually

FIVE_MINUTES = timedelta(minutes=5)
LONGER = HELD_AT_MOST + timedelta(seconds=5)
LASTS_S = 6
SLACK_S = 60.0
"""Far more than a busy machine delays anything, and far less than a step."""
WITHIN_S = 240.0
"""Whatever waits until a step has been caught up with is not done by then."""

# The workload notes seconds since the boot: no clock that this test sets has a part in how long it ran. It began with
# its process: on a busy machine its first line may come seconds after its time has begun.
_TIMED = """
note_end() { read up _ </proc/uptime; echo "end $GPU_DEV_JOB_ID $up" >>"$RECORDS.times"; }
trap 'note_end; over 143' TERM
set -- $(cat /proc/$$/stat)
echo "start $GPU_DEV_JOB_ID ${22}" >>"$RECORDS.times"
sleep 600
"""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PROMISES = """
SELECT p.reservation_id, extract(epoch FROM r.started_at - p.promised_start_at) AS late_s,
       EXISTS (SELECT FROM events e WHERE e.reservation_id = r.id AND e.kind = 'start_promise_missed') AS missed
FROM start_promises p JOIN reservations r ON r.id = p.reservation_id WHERE r.started_at IS NOT NULL
"""
_CONNECTIONS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE 'reservation_processor%'
"""
_STEPS = "SELECT data ->> 'held' FROM events WHERE kind = 'clock_stepped'"


@pytest.fixture
async def time(database_url: str) -> ShiftedTime:
    """The clock of the database's machine."""
    return await ShiftedTime.install(database_url, datetime.now(UTC))


@pytest.fixture
async def system(database_url: str, tmp_path: Path, gpus: str, time: ShiftedTime) -> AsyncIterator[System]:
    """An installation on a database whose clock can be set."""
    async with open_system(database_url, tmp_path, gpus) as opened:
        yield opened


@contextmanager
def processors(system: System) -> Iterator[list[ProcessorProcess]]:
    """Two processors on a machine whose clock can be set; neither ends by itself."""
    with ExitStack() as running:
        program = ("tests.faults.systems.stepped_program", "reservation_processor")
        started = [running.enter_context(system.processor(program=program, lease_s=3)) for _ in range(2)]
        yield started
        assert [process.returncode() for process in started] == [None, None]


async def submit_load(system: System) -> tuple[list[str], list[str]]:
    """Twice as many jobs as there are cards that last until they expire, and short ones behind them."""
    long = [system.new(system.records.workload(work=_TIMED), duration=LASTS_S) for _ in range(16)]
    short = [system.new(system.records.workload(), duration=LASTS_S) for _ in range(8)]
    ids = await system.submit(*long, *short)
    return ids[:16], ids[16:]


async def busy(system: System) -> bool:
    """Whether jobs run, and others were promised their starts."""
    [[running, promised]] = await system.rows(
        "SELECT (SELECT count(*) FROM reservations WHERE status = 'running'), (SELECT count(*) FROM start_promises)"
    )
    return bool(running >= 6 and promised >= 6)


def ran_s(system: System) -> dict[str, float]:
    """How long each job ran that was ended, in seconds since the boot."""
    starts: dict[str, float] = {}
    lasted: dict[str, float] = {}
    for line in Path(f"{system.records.path}.times").read_text().splitlines():
        what, job, at = line.split(" ")
        if what == "start":
            starts[job] = float(at) / _TICKS_PER_S
        else:
            lasted[job] = float(at) - starts[job]
    return lasted


async def runs_to_its_end(system: System, long: list[str], short: list[str]) -> None:
    """All of the load comes to its end in its time, with expiries that are there before the step and begin after it."""

    async def all_over() -> bool:
        await system.expire()
        return await system.all_final()

    with system.processor(program=("tests.faults.systems.stepped_program", "reservation_expiry")) as expiry:
        await eventually(lambda: expiry.returncode() is not None)
        assert expiry.returncode() == 0, expiry.log.read_text()
    short += await system.submit(*(system.new(system.records.workload(), duration=LASTS_S) for _ in range(4)))
    await eventually(all_over, timeout=WITHIN_S)
    found = await outcomes(system)
    assert {job: found[job] for job in short} == dict.fromkeys(short, (JobStatus.SUCCEEDED, 0))
    assert {found[job][0] for job in long} == {JobStatus.EXPIRED}
    lasted = ran_s(system)
    assert set(lasted) == set(long)
    assert min(lasted.values()) >= LASTS_S - 1
    assert max(lasted.values()) <= LASTS_S + SLACK_S
    promises = await system.rows(_PROMISES)
    assert promises
    assert [row for row in promises if row.late_s > SLACK_S and not row.missed] == []
    await assert_nothing_left(system)
    await assert_never_doubled(system)


@pytest.mark.parametrize("by", [FIVE_MINUTES, -FIVE_MINUTES], ids=["forward", "back"])
async def test_the_databases_clock_steps_under_load(system: System, time: ShiftedTime, by: timedelta) -> None:
    """The leader makes up for the step; a leader of later times, and processes that begin later, know of it."""
    with processors(system):
        long, short = await submit_load(system)
        await eventually(lambda: busy(system))
        before = system.runtime.clock.now()
        begun = asyncio.get_running_loop().time()
        await time.step_database(by)
        await runs_to_its_end(system, long, short)
    assert await system.rows(_STEPS) == [("true",)]
    # Both at one moment: ending the processors takes time on a busy machine.
    counted = timedelta(seconds=asyncio.get_running_loop().time() - begun)
    assert abs(system.runtime.clock.now() - before - counted) < timedelta(seconds=1) + counted / 100


async def test_the_databases_clock_is_set_to_and_fro_under_load(system: System, time: ShiftedTime) -> None:
    """A standby waits for the leader even where one step alone is longer than any that is made up for."""
    with processors(system):
        long, short = await submit_load(system)
        await eventually(lambda: busy(system))
        for done, by in enumerate((FIVE_MINUTES, -LONGER, LONGER, -LONGER, LONGER)):
            await time.step_database(by)
            await eventually(lambda done=done: _recorded(system, done + 1))
        await runs_to_its_end(system, long, short)
    assert await system.rows(_STEPS) == [("true",)] * 5


async def _recorded(system: System, steps: int) -> bool:
    return len(await system.rows(_STEPS)) >= steps


@pytest.mark.parametrize("by", [FIVE_MINUTES, -FIVE_MINUTES], ids=["forward", "back"])
async def test_the_machines_clock_steps_under_load(system: System, by: timedelta) -> None:
    """Neither what processes count nor what supervisors of pods count depends on it."""
    step = system.home / stepped_supervisor.STEP_FILE
    with processors(system):
        long, short = await submit_load(system)
        await eventually(lambda: busy(system))
        _write(step, by)
        await runs_to_its_end(system, long, short)
    assert await system.rows(_STEPS) == []


@pytest.mark.parametrize("standby", [True, False], ids=["standby", "later"])
@pytest.mark.parametrize("by", [FIVE_MINUTES, -FIVE_MINUTES], ids=["forward", "back"])
async def test_a_processor_takes_over_after_a_step(
    system: System, time: ShiftedTime, by: timedelta, standby: bool
) -> None:
    """No five minutes without a leader or without starts, although the one that saw the step is dead."""

    async def connections() -> int:
        [[found]] = await system.rows(_CONNECTIONS)
        return int(found)

    with ExitStack() as running:
        first = running.enter_context(system.processor(lease_s=3))
        jobs = await system.submit(*(system.new(system.records.workload()) for _ in range(8)))
        for job in jobs:
            await system.reaches(job, JobStatus.SUCCEEDED)
        if standby:
            before = await connections()
            running.enter_context(system.processor(lease_s=3))
            # It asks what time it is before it opens a second one.
            await eventually(lambda: _more_than(connections, before + 1))
        # Nobody makes up for the step while nobody leads.
        first.send(signal.SIGSTOP)
        await time.step_database(by)
        first.end(signal.SIGKILL)
        if not standby:
            running.enter_context(system.processor(lease_s=3))
        jobs = await system.submit(*(system.new(system.records.workload()) for _ in range(8)))
        for job in jobs:
            await system.reaches(job, JobStatus.SUCCEEDED, timeout=WITHIN_S)


async def _more_than(count: Callable[[], Awaitable[int]], least: int) -> bool:
    return await count() > least


def _write(file: Path, by: timedelta) -> None:
    new = file.with_suffix(".new")
    new.write_text(str(by.total_seconds()))
    os.replace(new, file)  # noqa: PTH105

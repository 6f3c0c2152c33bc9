"""`kill -9` of the processor while jobs wait for others: none of them starts too early, and none is forgotten."""

import signal
from dataclasses import replace

import pytest

from reservation_core.domain.jobs.asked_dependencies import Dependency, DependencyWhen
from reservation_core.domain.statuses import JobStatus
from reservation_core.usecases.jobs.dependencies import known_dependencies, submit_dependent
from tests.faults.systems.invariants import assert_never_doubled, assert_nothing_left, outcomes
from tests.faults.systems.system import System
from tests.waiting import eventually

SUCCEEDED, ENDED, FAILED, STARTED = DependencyWhen
LONGEST_S = 120
TOO_EARLY = """
SELECT d.job_id, d.needs_id FROM job_dependencies d
JOIN reservations j ON j.id = d.job_id JOIN reservations n ON n.id = d.needs_id
WHERE j.started_at < CASE d.condition WHEN 'started' THEN n.started_at ELSE n.finished_at END
"""
MOMENTS = {
    "before_release": ("before release committed", 1),
    "after_release": ("after release committed", 2),
    "before_end": ("before close committed", 1),
    "after_end": ("after close committed", 2),
    "before_given_up": ("before close committed", 3),
    "after_start": ("after running committed", 2),
}


async def submit_after(system: System, after: dict[str, DependencyWhen], exit_code: int = 0) -> str:
    """The id of a job that waits for others."""
    runtime, who = system.runtime, system.owner
    async with runtime.uow() as uow:
        known = await known_dependencies(uow, who, [Dependency(job, when) for job, when in after.items()])
    new = system.new(system.records.workload(exit_code))
    held = replace(new, reservation=replace(new.reservation, held=True), after=known)
    answer = await submit_dependent(runtime.uow, who, held, runtime.clock.now())
    assert answer.is_stored
    return answer.reservation_id


async def submit_graph(system: System) -> dict[str, JobStatus]:
    """Jobs by how each has to end."""
    done, failed, given_up = JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED
    [good, bad] = await system.submit(
        system.new(system.records.workload(work="sleep 0.5")), system.new(system.records.workload(3))
    )
    second = await submit_after(system, {good: SUCCEEDED})
    cleaning = await submit_after(system, {bad: FAILED, good: STARTED})
    never = await submit_after(system, {bad: SUCCEEDED, second: ENDED})
    behind = await submit_after(system, {never: SUCCEEDED})
    last = await submit_after(system, {second: SUCCEEDED, behind: ENDED, cleaning: ENDED}, exit_code=7)
    return {good: done, bad: failed, second: done, cleaning: done, never: given_up, behind: given_up, last: failed}


@pytest.mark.parametrize("name", MOMENTS)
async def test_a_processor_killed_anywhere_forgets_no_held_job(system: System, name: str) -> None:
    expected = await submit_graph(system)
    moment, times = MOMENTS[name]
    with system.processor(program=("tests.faults.systems.crashing_processor", moment, str(times))) as crashing:
        await eventually(lambda: crashing.returncode() is not None, timeout=LONGEST_S)
        assert crashing.returncode() == -signal.SIGKILL, crashing.log.read_text()
    with system.processor():
        await eventually(system.all_final, timeout=LONGEST_S)
        await assert_nothing_left(system)
    seen = await outcomes(system)
    assert {job_id: seen[job_id][0] for job_id in expected} == expected
    assert await system.rows(TOO_EARLY) == []
    await assert_never_doubled(system)

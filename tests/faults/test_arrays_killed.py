"""`kill -9` of the processor while it makes, counts and ends arrays: each element runs once, and none is missing."""

import signal

import pytest

from reservation_core.domain.request_terms import ArrayCounts
from reservation_core.domain.statuses import JobStatus
from tests.faults.systems.invariants import assert_never_doubled, assert_nothing_left
from tests.faults.systems.system import System
from tests.waiting import eventually

LONGEST_S = 120
SIZE, PARALLEL = 12, 5
MOMENTS = {
    "before_the_first": ("before elements made committed", 1),
    "after_the_first": ("after elements made committed", 1),
    "before_others": ("before elements made committed", 3),
    "after_others": ("after elements made committed", 3),
    "before_counting": ("before news of arrays committed", 4),
    "after_counting": ("after news of arrays committed", 5),
}
MADE = """
SELECT a.id, a.made, a.succeeded + a.failed AS ended, count(r.id) AS there,
       count(*) FILTER (WHERE (SELECT count(*) FROM events e
                               WHERE e.reservation_id = r.id AND e.kind = 'submitted') <> 1) AS odd
FROM job_arrays a LEFT JOIN reservations r ON r.array_id = a.id GROUP BY a.id
"""


@pytest.mark.parametrize("name", MOMENTS)
async def test_a_processor_killed_anywhere_makes_each_element_once(system: System, name: str) -> None:
    work = system.records.workload(work='test "$GPU_DEV_ARRAY_INDEX" != 3 || over 7')
    [array_id] = await system.submit(system.new(work, array={"size": SIZE, "parallel": PARALLEL}))
    moment, times = MOMENTS[name]
    with system.processor(program=("tests.faults.systems.crashing_processor", moment, str(times))) as crashing:
        await eventually(lambda: crashing.returncode() is not None, timeout=LONGEST_S)
        assert crashing.returncode() == -signal.SIGKILL, crashing.log.read_text()
    with system.processor():
        await eventually(system.all_final, timeout=LONGEST_S)
        await assert_nothing_left(system)
    view = await system.job(array_id)
    assert view.counts == ArrayCounts(succeeded=SIZE - 1, failed=1)
    assert (view.reservation.status, view.reservation.exit_code) == (JobStatus.FAILED, 7)
    assert [tuple(row) for row in await system.rows(MADE)] == [(array_id, SIZE, SIZE, SIZE, 0)]
    assert await system.rows("SELECT id FROM array_news WHERE status IS NOT NULL") == []
    started = [line.job for line in system.records.lines() if line.what == "start"]
    assert sorted(started) == sorted(f"{array_id}.{index}" for index in range(SIZE))
    await assert_never_doubled(system)

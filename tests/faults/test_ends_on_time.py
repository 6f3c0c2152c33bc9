"""Jobs end on time, and promised starts are kept, with the set of processes that the chart deploys.

What happened is judged by the database's rows alone. The bounds are for a machine that does its work at its usual pace:
each is multiplied by how many times slower than usual the machine was just then (see `machine_reference`), so that a
loaded machine fails nobody, and a minute's delay on an idle one is one.
"""

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from reservation_core.domain.statuses import JobStatus
from tests.examples import amount
from tests.faults.systems.deployed import Deployment, deployed
from tests.faults.systems.kubernetes_system import KubernetesInstallation, open_kubernetes_installation
from tests.faults.systems.system import System, mixed
from tests.kubernetes.api_server import ApiServer
from tests.waiting import eventually

JOBS = int(os.environ.get("FAULTS_TIMELY_JOBS", "200"))
GRACE_S = 3.0
LATE_S = 2.0
DELAY_S = 1.0
AROUND_S = 3.0
DURATION_S = 3
# As short as a busy machine allows: bookings can begin soon on GPUs that jobs use until then.
SETTINGS: dict[str, object] = {"end_grace_s": GRACE_S, "start_allowance_s": 20}
_WITHIN_S = 60 + JOBS * 2

# Each third of the jobs: ends by itself, ends when it is told to, has to be killed.
_WORK = {"done": "sleep 1.5", "told": "sleep 600 & wait", "killed": "trap '' TERM; sleep 600"}

_STARTS = """
SELECT r.id, p.promised_start_at AS due, r.started_at AS at
FROM start_promises p JOIN reservations r ON r.id = p.reservation_id WHERE r.started_at IS NOT NULL
UNION ALL
SELECT r.id, greatest(b.starts_at, o.created_at), r.started_at
FROM reservations r JOIN bookings b ON b.id = r.booking_id JOIN reservations o ON o.id = b.id
WHERE r.started_at IS NOT NULL
"""
_ENDS = """
SELECT id, ends_at AS due, finished_at AS at FROM reservations
WHERE kind = 'job' AND ends_at IS NOT NULL AND finished_at IS NOT NULL
"""
_STANDING = "SELECT status, count(*) AS jobs FROM reservations WHERE kind = 'job' GROUP BY status"
_MISSED = """
SELECT reservation_id AS id FROM events JOIN notice_events n ON n.event = events.kind WHERE n.kind = 'promise_missed'
"""
_PROMISED = """
SELECT r.id, p.promised_start_at AS at FROM start_promises p JOIN reservations r ON r.id = p.reservation_id
WHERE r.id = ANY(:ids) AND r.status = 'queued'
"""
_SILENT = """
SELECT r.id, p.promised_start_at, r.started_at, r.finished_at
FROM start_promises p JOIN reservations r ON r.id = p.reservation_id
WHERE coalesce(r.started_at, r.finished_at) > p.promised_start_at + interval '5 seconds'
  AND (SELECT count(*) FROM events e WHERE e.reservation_id = r.id AND e.kind = 'start_promise_missed') <> 1
"""


@pytest.fixture
def gpus() -> str:
    return "a=h100:12;b=h100:12"


@pytest.fixture
async def kubernetes(
    database_url: str, tmp_path: Path, api_server: ApiServer, namespace: str
) -> AsyncIterator[KubernetesInstallation]:
    nodes = {"node1": 12}
    async with open_kubernetes_installation(database_url, tmp_path, api_server, namespace, nodes) as opened:
        yield opened


@pytest.fixture
async def deployment(system: System, tmp_path: Path) -> AsyncIterator[Deployment]:
    async with deployed(system, tmp_path, **SETTINGS) as running:
        yield running


@dataclass(frozen=True, slots=True)
class Moment:
    """When something was due and when it was, seconds since the epoch."""

    id: str
    due: float
    at: float

    @property
    def late(self) -> float:
        """By how many seconds."""
        return self.at - self.due


async def moments(system: System, sql: str) -> list[Moment]:
    """What a statement answers."""
    return [Moment(row.id, row.due.timestamp(), row.at.timestamp()) for row in await system.rows(sql)]


async def book_until(deployment: Deployment, start: datetime, end: datetime, gpus: int) -> None:
    """Book, with a workload that has to be killed at its end."""
    body = {
        "gpus": gpus, "gpu_type": "h100", "start": f"{start:%Y-%m-%dT%H:%M:00Z}", "end": f"{end:%Y-%m-%dT%H:%M:00Z}",
        "workload": deployment.system.records.workload(work=_WORK["killed"]),
    }  # fmt: skip
    answer = await deployment.post("/v1/bookings", body)
    assert answer.status_code == 201, answer.text


async def submit_as_gpus_end(deployment: Deployment, jobs: int) -> None:
    """Submit so that as many wait as run: whoever comes behind a running job is promised the very end of it."""
    variety, submitted, deadline = mixed(7), 0, time.monotonic() + _WITHIN_S

    async def post() -> None:
        kind = variety.choice([*_WORK])
        work = {"done": _WORK["done"], "told": "sleep 600", "killed": _WORK["killed"]}[kind]
        workload = deployment.system.records.workload(work=work)
        answer = await deployment.post("/v1/jobs", {"gpus": 1, "duration": DURATION_S, "workload": workload})
        assert answer.status_code == 202, answer.text

    while submitted < jobs:
        assert time.monotonic() < deadline, await deployment.system.rows(_STANDING)
        standing = Counter({row.status: row.jobs for row in await deployment.system.rows(_STANDING)})
        wanted = standing["running"] if submitted else 24
        for _ in range(min(wanted - standing["queued"], jobs - submitted)):
            await post()
            submitted += 1
        await asyncio.sleep(0.1)


async def tried_closely(deployment: Deployment, jobs: int, grace_s: float = GRACE_S, more_s: float = 0.0) -> None:
    """Submit until enough has begun at the very end of somebody else: a busy machine makes fewer of them so."""
    for _ in range(3):
        await submit_as_gpus_end(deployment, jobs)
        await eventually(deployment.system.all_final, timeout=_WITHIN_S)
        seen = await assert_on_time(deployment, grace_s, more_s)
        if seen["close"] >= jobs // 4:
            return
    raise AssertionError(f"too few jobs began close to the end of others: {seen}")


async def assert_on_time(deployment: Deployment, grace_s: float = GRACE_S, more_s: float = 0.0) -> dict[str, Any]:
    """Every promised start and every end was on time, as far as the machine was; answers what was seen."""
    starts, ends = await moments(deployment.system, _STARTS), await moments(deployment.system, _ENDS)

    def slowness(since_s: float, until_s: float) -> float:
        """Of the machine then, and just before and after: what is measured is a sample."""
        return deployment.reference.slowness(since_s - AROUND_S, until_s + AROUND_S)

    too_late = [start for start in starts if start.late > (LATE_S + more_s) * slowness(start.due, start.at)]
    too_long = [end for end in ends if end.late > grace_s + (LATE_S + more_s) * slowness(end.due, end.at)]
    seen = {
        "starts": len(starts), "latest": max(start.late for start in starts),
        "close": sum(abs(start.late) <= GRACE_S for start in starts),
        "ends": len(ends), "longest": max(end.late for end in ends),
        "slowness": slowness(0, time.time()),
    }  # fmt: skip
    print(seen)
    assert (too_late, too_long) == ([], []), seen
    return seen


async def test_with_the_charts_processes_jobs_end_and_start_on_time(deployment: Deployment) -> None:
    """The expiry comes once a minute, and yet nobody overruns their end, nor waits past their promise."""
    system = deployment.system
    minute = datetime.fromtimestamp(time.time() // 60 * 60, UTC)
    await book_until(deployment, minute, minute + timedelta(minutes=1 if time.time() % 60 < 40 else 2), gpus=2)
    await book_until(deployment, minute + timedelta(minutes=2), minute + timedelta(minutes=4), gpus=2)
    await tried_closely(deployment, JOBS)
    assert await system.rows(_SILENT) == []


@pytest.mark.hypothesis  # for `make explore`, with all jobs
async def test_a_node_agent_that_tells_late_delays_nobody_past_their_promise(
    kubernetes: KubernetesInstallation, tmp_path: Path
) -> None:
    """What a node agent says a second late (a start, an end) the calendar has left room for."""
    kubernetes.kubelet.report_delay_s = DELAY_S
    settings = {**SETTINGS, "ending_patience_s": None}
    async with deployed(kubernetes, tmp_path, **settings) as deployment:
        # A job has its GPUs until its end was told; that they are promised to others only later is `release_s`.
        await tried_closely(deployment, amount(min(72, JOBS), JOBS), GRACE_S + DELAY_S)
        assert await kubernetes.rows(_SILENT) == []
    assert kubernetes.kubelet.double_use == []


async def test_starts_that_were_due_while_no_processor_lived_are_recorded_once(deployment: Deployment) -> None:
    """`kill -9` of all processors over a dozen promised starts, some of whose jobs are cancelled meanwhile."""
    system, records = deployment.system, deployment.system.records
    long, short = records.workload(work="sleep 600"), records.workload(work="sleep 0.1")
    running = await system.submit(*(system.new(long, gpus=2, duration=15) for _ in range(12)))
    for job_id in running:
        await system.reaches(job_id, JobStatus.RUNNING)
    waiting = await system.submit(*(system.new(short, gpus=2) for _ in range(12)))

    async def all_promised() -> bool:
        return [row.jobs for row in await system.rows("SELECT count(*) AS jobs FROM start_promises")] == [12]

    await eventually(all_promised)
    deployment.kill_processors()
    # On a busy machine some may have started before.
    left = await system.rows(_PROMISED, ids=waiting)
    assert left
    last = max(row.at for row in left)
    await eventually(lambda: datetime.now(UTC) > last + timedelta(seconds=4))
    for row in left[::3]:
        await system.cancel(row.id)
    with ExitStack() as stack:
        await deployment.start_processors(stack)
        await eventually(system.all_final)
        missed = Counter(row.id for row in await system.rows(_MISSED))
    assert missed == Counter(row.id for row in left)

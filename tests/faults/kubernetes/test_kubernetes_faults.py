"""An API server that errs, stalls, loses answers or can't be reached: jobs end as they should, and nothing is left.

All that is ours goes through a proxy that does the harm; kubelet and checks go to the API server itself. In each test a
stream of jobs runs: short ones, gangs, some that are cancelled in the middle of it, and some that live all through it
and must not be ended because the API was silent.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from reservation_core.domain.statuses import JobStatus
from tests.faults.systems.kubernetes_system import (
    LATE_S,
    LONGER_S,
    START_ALLOWANCE_S,
    TIMEOUT_S,
    KubernetesInstallation,
    assert_nothing_left,
    left_over,
    open_kubernetes_installation,
)
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.fault_proxy import FaultProxy, Harm, Partition, Rule
from tests.waiting import eventually

# As many as it takes to be in the middle of everything; more where the machine has a real API server to spend time on.
JOBS = 60 if os.environ.get("KUBEBUILDER_ASSETS") else 30
LIVING = 3
PODS = "/pods"
LISTED = "/pods[?](?!.*watch=)"
WATCHED = "/pods[?].*watch="


@pytest.fixture
async def system(
    database_url: str, tmp_path: Path, api_server: ApiServer, namespace: str
) -> AsyncIterator[KubernetesInstallation]:
    nodes = {"node1": 4, "node2": 4, "node3": 4}
    async with open_kubernetes_installation(database_url, tmp_path, api_server, namespace, nodes) as opened:
        yield opened


@dataclass(frozen=True, slots=True)
class Stream:
    """The jobs of one test: how the short ones and the gangs must end, which are cancelled, and which live."""

    exits: dict[str, int]
    cancelled: list[str]
    living: list[str]
    gate: Path


async def begin(system: KubernetesInstallation, jobs: int = JOBS) -> Stream:
    """Submit a stream; the living ones first, and wait until they run."""
    records, gate = system.records, system.home.parent / "gate"
    forever = records.workload(work=f'until [ -e "{gate}" ]; do sleep 0.5; done')
    living = await system.submit(*(system.new(forever) for _ in range(LIVING)))
    for job_id in living:
        await system.reaches(job_id, JobStatus.RUNNING)
    news, exits, cancelled = [], [], []
    for number in range(jobs - LIVING):
        match number % 6:
            case 5:
                news.append(system.new(records.workload(work="sleep 600 & wait")))
                exits.append(None)
            case 3:
                news.append(system.new(records.workload(work="sleep 0.1"), gpus=2, nodes=2))
                exits.append(0)
            case _:
                news.append(system.new(records.workload(number % 3, work="sleep 0.1"), gpus=1 + number % 2))
                exits.append(number % 3)
    ids = await system.submit(*news)
    cancelled = [job_id for job_id, code in zip(ids, exits, strict=True) if code is None]
    expected = {job_id: code for job_id, code in zip(ids, exits, strict=True) if code is not None}
    return Stream(expected, cancelled, living, gate)


async def cancel_all(system: KubernetesInstallation, stream: Stream) -> None:
    """Cancel each of those that are to be, some before they run, some while they do."""
    for job_id in stream.cancelled:
        await system.cancel(job_id)
        await asyncio.sleep(0.05)


async def end(system: KubernetesInstallation, stream: Stream) -> None:
    """Everybody but the living has ended; they are let go; everything is as if nothing had happened."""

    async def only_the_living() -> bool:
        rows = await system.rows("SELECT id FROM reservations WHERE finished_at IS NULL")
        return {row.id for row in rows} <= set(stream.living)

    try:
        await eventually(only_the_living, 120)
    except AssertionError:
        raise AssertionError(str(await left_over(system))) from None
    for job_id in stream.living:
        assert await system.status(job_id) is JobStatus.RUNNING
    stream.gate.touch()
    for job_id in stream.living:
        await system.reaches(job_id, JobStatus.SUCCEEDED)
    await assert_nothing_left(system)
    rows = await system.rows("SELECT id, status, exit_code, reason_code, reason, attempt FROM reservations")
    found = {row.id: row for row in rows}
    wrong = [tuple(found[i]) for i, code in stream.exits.items() if found[i].exit_code != code]
    assert not wrong
    assert {found[job_id].status for job_id in stream.cancelled} == {"cancelled"}


def conflicts(proxy: FaultProxy) -> list[Rule]:
    return [
        proxy.inject(Harm.ANSWER, "POST", PODS, code=409, times=10),
        proxy.inject(Harm.ANSWER, "DELETE", PODS, code=409, times=10),
        proxy.inject(Harm.ANSWER_INSTEAD, "POST", PODS, code=409, times=10),
    ]


def forgotten_versions(proxy: FaultProxy) -> list[Rule]:
    proxy.cut_watches()
    return [
        proxy.inject(Harm.ERROR_EVENT, "GET", WATCHED, code=410, lines=2, times=2),
        proxy.inject(Harm.ANSWER, "GET", WATCHED, code=410, times=3),
        proxy.inject(Harm.ANSWER, "GET", LISTED, code=410, times=10),
    ]


def too_many_requests(proxy: FaultProxy) -> list[Rule]:
    return [
        proxy.inject(Harm.ANSWER, "POST", PODS, code=429, retry_after_s=1, times=15),
        proxy.inject(Harm.ANSWER, "*", PODS, code=429, retry_after_s=1, times=15),
    ]


def server_errors(proxy: FaultProxy) -> list[Rule]:
    return [
        proxy.inject(Harm.ANSWER, "*", "", code=500, times=60),
        proxy.inject(Harm.ANSWER_INSTEAD, "POST", PODS, code=500, times=10),
        proxy.inject(Harm.ANSWER_INSTEAD, "DELETE", PODS, code=500, times=10),
    ]


def gateway_timeouts(proxy: FaultProxy) -> list[Rule]:
    return [
        proxy.inject(Harm.ANSWER, "GET", "", code=504, times=20),
        proxy.inject(Harm.ANSWER_INSTEAD, "POST", PODS, code=504, times=20),
        proxy.inject(Harm.ANSWER_INSTEAD, "DELETE", PODS, code=504, times=20),
    ]


def lost_answers(proxy: FaultProxy) -> list[Rule]:
    return [
        proxy.inject(Harm.HANG_AFTER, "POST", PODS, times=4),
        proxy.inject(Harm.HANG_AFTER, "DELETE", PODS, times=4),
        proxy.inject(Harm.DROP_ANSWER, "POST", PODS, times=20),
        proxy.inject(Harm.DROP_ANSWER, "DELETE", PODS, times=20),
        proxy.inject(Harm.DROP_REQUEST, "*", PODS, times=20),
    ]


def late_creates(proxy: FaultProxy) -> list[Rule]:
    """Carried out after they were given up, and after what was asked again in their stead."""
    return [
        proxy.inject(Harm.DELAY, "POST", PODS, seconds=TIMEOUT_S + LATE_S - 0.5, times=4),
        proxy.inject(Harm.DELAY, "POST", PODS, seconds=TIMEOUT_S + LATE_S - 0.5, after=8, times=12),
    ]


def dropped_watches(proxy: FaultProxy) -> list[Rule]:
    proxy.cut_watches()
    return [
        proxy.inject(Harm.CUT_STREAM, "GET", WATCHED, lines=1, times=30),
    ]


@pytest.mark.parametrize(
    "harm",
    [
        conflicts,
        forgotten_versions,
        too_many_requests,
        server_errors,
        gateway_timeouts,
        lost_answers,
        late_creates,
        dropped_watches,
    ],
    ids=lambda harm: harm.__name__,
)
async def test_a_stream_of_jobs_ends_as_it_should(
    system: KubernetesInstallation, harm: Callable[[FaultProxy], list[Rule]]
) -> None:
    async with system.at_work():
        stream = await begin(system)
        rules = harm(system.proxy)
        await cancel_all(system, stream)
        await end(system, stream)
        assert all(rule.used for rule in rules), "every harm was really done"


@pytest.mark.parametrize("how", list(Partition), ids=lambda how: how.name.lower())
async def test_a_partition_longer_than_any_patience_ends_nothing_that_lives(
    system: KubernetesInstallation, how: Partition
) -> None:
    async with system.at_work(start_allowance_s=START_ALLOWANCE_S):
        stream = await begin(system)
        await eventually(lambda: len(system.records.started()) > LIVING + 5)
        system.proxy.partition(how)
        parted_at = asyncio.get_running_loop().time()
        await cancel_all(system, stream)
        # Only time makes a partition long: what is waited for is that all patience has run out.
        await eventually(lambda: asyncio.get_running_loop().time() > parted_at + LONGER_S, LONGER_S + 10)
        for job_id in stream.living:
            assert await system.status(job_id) is JobStatus.RUNNING
        assert {job for job, _ in system.records.open()} >= set(stream.living)
        system.proxy.heal()
        await end(system, stream)

"""A create whose answer was lost or comes late, and a cancel: the job runs once at most, and its cards wait for it."""

import time
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path

import pytest

from reservation_core.domain.statuses import JobStatus
from tests.faults.systems.kubernetes_system import (
    TIMEOUT_S,
    KubernetesInstallation,
    assert_nothing_left,
    open_kubernetes_installation,
)
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.fault_proxy import FaultProxy, Harm, Rule
from tests.waiting import eventually

PODS = "/pods"
LATE_S = 15.0
"""Enough for a busy machine to run a job, cancel it and end its pod before what is late has come."""

AS_LATE_AS_CAN_BE_S = 2.5 * TIMEOUT_S + LATE_S - 2
"""After it was begun. A call's tries take 2.5 times a try's limit together, and what is late comes within LATE_S."""


@pytest.fixture
async def system(
    database_url: str, tmp_path: Path, api_server: ApiServer, namespace: str
) -> AsyncIterator[KubernetesInstallation]:
    async with open_kubernetes_installation(
        database_url, tmp_path, api_server, namespace, {"node1": 4}, LATE_S
    ) as opened:
        yield opened


def answer_lost(proxy: FaultProxy) -> Rule:
    """A timeout after success."""
    return proxy.inject(Harm.HANG_AFTER, "POST", PODS, times=1)


def carried_out_late(proxy: FaultProxy) -> Rule:
    """After what was asked in its stead."""
    return proxy.inject(Harm.DELAY, "POST", PODS, seconds=AS_LATE_AS_CAN_BE_S, times=1)


@pytest.mark.parametrize("harm", [answer_lost, carried_out_late], ids=lambda harm: harm.__name__)
async def test_a_job_that_ran_when_it_was_cancelled_does_not_run_again(
    system: KubernetesInstallation, harm: Callable[[FaultProxy], Rule]
) -> None:
    forever = system.records.workload(work="sleep 600 & wait")
    async with system.at_work():
        rule = harm(system.proxy)
        [cancelled] = await system.submit(system.new(forever, gpus=4))
        await eventually(lambda: (cancelled, 0) in system.records.open())
        await system.cancel(cancelled)
        await eventually(lambda: not system.records.open())
        [other] = await system.submit(system.new(system.records.workload(), gpus=4))
        await system.reaches(cancelled, JobStatus.CANCELLED)
        await system.reaches(other, JobStatus.SUCCEEDED)
        assert rule.used
        await eventually(lambda: all_were_answered(system))
        await assert_nothing_left(system)


async def test_a_pod_that_comes_to_be_after_its_job_was_cancelled_is_ended_before_anybody_gets_its_cards(
    system: KubernetesInstallation,
) -> None:
    forever = system.records.workload(work="sleep 600 & wait")
    async with system.at_work():
        late = carried_out_late(system.proxy)
        lost = system.proxy.inject(Harm.DROP_REQUEST, "POST", PODS)
        [cancelled] = await system.submit(system.new(forever, gpus=4))
        await eventually(lambda: late.used)
        await system.cancel(cancelled)
        [other] = await system.submit(system.new(system.records.workload(), gpus=4))
        await eventually(lambda: answered(system, "POST", PODS, 201))
        lost.times = 0
        await system.reaches(cancelled, JobStatus.CANCELLED)
        await system.reaches(other, JobStatus.SUCCEEDED)
        [late_made, other_made] = answered(system, "POST", PODS, 201)
        [late_ended, *_] = answered(system, "DELETE", f"{PODS}/{cancelled}-1-0", 200)
        assert late_made < late_ended < other_made
        cards = await system.rows("SELECT released_at FROM allocations WHERE reservation_id = :id", id=cancelled)
        late_made_at = system.runtime.clock.now() - timedelta(seconds=time.monotonic() - late_made)
        assert min(card.released_at for card in cards) > late_made_at
        assert (await system.job(cancelled)).reservation.attempt == 1
        await assert_nothing_left(system)


def answered(system: KubernetesInstallation, method: str, path: str, *codes: int) -> list[float]:
    """When requests were answered with one of the codes (with any, if none is given), in that order."""
    return [
        seen.at
        for seen in system.proxy.requests
        if seen.method == method and seen.path.partition("?")[0].endswith(path) and (not codes or seen.code in codes)
    ]


def all_were_answered(system: KubernetesInstallation) -> bool:
    """Whether what was late has come: only then is it known that nothing came of it."""
    return len(answered(system, "POST", PODS)) >= 3

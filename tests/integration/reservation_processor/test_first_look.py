"""Nobody plans, and nobody makes a pod, before having seen what pods there are."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from reservation_core.domain.statuses import JobStatus
from reservation_core.ports.cluster import Cluster, ClusterUnavailableError
from reservation_core.runtime.wiring import Runtime
from reservation_processor.leading import lead
from reservation_processor.process import run
from tests.integration.reservation_processor.test_way_of_a_job import (
    SETTINGS,
    Principal,
    alice,  # noqa: F401 -- a fixture
    reaches,
    status,
    submitted,
)
from tests.waiting import eventually


class Veiled:
    """A cluster whose pods can't be listed for the time being; all else goes on."""

    def __init__(self, inner: Cluster) -> None:
        self._inner = inner
        self.asked = 0
        self.created = 0
        self.open = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def list_pods(self, *, foreign: bool = False) -> Any:
        self.asked += 1
        if not self.open:
            raise ClusterUnavailableError("veiled")
        return await self._inner.list_pods(foreign=foreign)

    async def create_pod(self, spec: Any, unanswered: Any = None) -> None:
        self.created += 1
        await self._inner.create_pod(spec, unanswered)


@pytest.fixture
def veiled(runtime: Runtime) -> tuple[Runtime, Veiled]:
    """The runtime with such a cluster."""
    cluster = Veiled(runtime.cluster)
    return replace(runtime, cluster=cluster), cluster  # type: ignore[arg-type]


@asynccontextmanager
async def at_work(act: Callable[..., Coroutine[Any, Any, None]], runtime: Runtime) -> AsyncIterator[None]:
    stop = asyncio.Event()
    task = asyncio.create_task(act(runtime, SETTINGS, stop))
    try:
        yield
    finally:
        stop.set()
        await task


async def test_a_new_leader_plans_when_it_has_seen_the_pods(
    runtime: Runtime,
    veiled: tuple[Runtime, Veiled],
    alice: Principal,  # noqa: F811
) -> None:
    behind, cluster = veiled
    job_id = await submitted(runtime, alice, "true")
    async with at_work(lead, behind):
        await eventually(lambda: cluster.asked >= 3)
        assert await status(runtime, job_id) is JobStatus.QUEUED
        cluster.open = True
        await reaches(runtime, job_id, JobStatus.STARTING)


async def test_a_processor_makes_pods_when_it_has_seen_those_that_there_are(
    runtime: Runtime,
    veiled: tuple[Runtime, Veiled],
    alice: Principal,  # noqa: F811
) -> None:
    behind, cluster = veiled
    job_id = await submitted(runtime, alice, "true")
    async with at_work(lead, runtime):
        await reaches(runtime, job_id, JobStatus.STARTING)
    async with at_work(run, behind):
        await eventually(lambda: cluster.asked >= 3)
        assert cluster.created == 0
        cluster.open = True
        await reaches(runtime, job_id, JobStatus.SUCCEEDED)

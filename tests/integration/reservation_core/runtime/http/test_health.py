"""What programs without an API answer about themselves."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from reservation_core.adapters.postgres.connection.engine import open_engine
from reservation_core.adapters.postgres.connection.queues import open_client
from reservation_core.adapters.postgres.connection.wakeups import PostgresWakeups
from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.ports.transactions import StatementRefusedError
from reservation_core.runtime.http.health import create_app
from reservation_core.runtime.loops.loops import PATIENCE_S, Loops
from reservation_core.runtime.wiring import Runtime


class Counted:
    """Seconds that pass when told to."""

    s = 0.0

    def __call__(self) -> float:
        return self.s


@pytest.fixture
def counted() -> Counted:
    """The loops' clock."""
    return Counted()


@pytest.fixture
def loops(runtime: Runtime, counted: Counted) -> Loops:
    """A process's loops."""
    return Loops(runtime.clock.now, counted)


@asynccontextmanager
async def asked(uow: UnitOfWorkFactory, loops: Loops) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the process."""
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(create_app(uow, loops)), base_url="http://program"
    ) as client:
        yield client


async def test_it_is_ready_while_the_database_answers_and_alive_without(
    runtime: Runtime, database_url: str, loops: Loops
) -> None:
    engine = open_engine(database_url, pool=1, application="test")
    away = open_engine("postgresql://nobody@/none?host=/nowhere", pool=1, application="test")
    client = await open_client(engine)
    try:
        for uow, ready in (
            (runtime.uow, 200),
            (UnitOfWorkFactory(away, client, PostgresWakeups(database_url, "test")), 503),
        ):
            async with asked(uow, loops) as process:
                assert (await process.get("/healthz")).status_code == 200
                assert (await process.get("/readyz")).status_code == ready
    finally:
        await engine.dispose()
        await away.dispose()


async def test_a_loop_that_fails_is_named_and_after_a_minute_it_is_not_ready(
    runtime: Runtime, loops: Loops, counted: Counted
) -> None:
    loops["planner"].failed(StatementRefusedError("read-only"))
    async with asked(runtime.uow, loops) as process:
        soon = await process.get("/readyz")
        assert (soon.status_code, soon.text.splitlines()[0]) == (200, "ready")
        assert soon.text.splitlines()[1].startswith("planner: failing since 20")
        counted.s = PATIENCE_S + 1
        late = await process.get("/readyz")
        assert late.status_code == 503
        assert "planner: failing since" in late.text
        assert (await process.get("/healthz")).status_code == 200, "to start it anew would mend nothing"
        metrics = (await process.get("/metrics")).text
        assert 'gpu_dev_loop_failing_seconds{loop="planner"} 61.0' in metrics
        assert 'gpu_dev_loop_failures_total{loop="planner"} 1.0' in metrics
        loops["planner"].note_success()
        assert (await process.get("/readyz")).text == "ready\n"

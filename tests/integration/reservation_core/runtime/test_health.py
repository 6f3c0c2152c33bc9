"""What programs without an API answer about themselves."""

import httpx

from reservation_core.adapters.pgmq.queue import open_client
from reservation_core.adapters.postgres.engine import open_engine
from reservation_core.adapters.postgres.unit_of_work import unit_of_work_factory
from reservation_core.adapters.postgres.wakeups import PostgresWakeups
from reservation_core.runtime.health import create_app
from reservation_core.runtime.wiring import Runtime


async def test_it_is_ready_while_the_database_answers_and_alive_without(runtime: Runtime, database_url: str) -> None:
    engine = open_engine(database_url, pool=1, application="test")
    away = open_engine("postgresql://nobody@/none?host=/nowhere", pool=1, application="test")
    client = await open_client(engine)
    try:
        for uow, ready in (
            (runtime.uow, 200),
            (unit_of_work_factory(away, client, PostgresWakeups(database_url, "test")), 503),
        ):
            transport = httpx.ASGITransport(create_app(uow))
            async with httpx.AsyncClient(transport=transport, base_url="http://program") as asked:
                assert (await asked.get("/healthz")).status_code == 200
                assert (await asked.get("/readyz")).status_code == ready
    finally:
        await engine.dispose()
        await away.dispose()

"""What the engine keeps to itself, and how many connections it opens."""

import asyncio

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from reservation_core.adapters.postgres.connection import engine as engines
from reservation_core.adapters.postgres.connection.engine import open_engine


async def test_no_error_shows_a_parameter(database_url: str) -> None:
    engine = open_engine(database_url, pool=1, application="test")
    try:
        with pytest.raises(DBAPIError) as caught:
            async with engine.begin() as connection:
                await connection.execute(text("SELECT CAST(:secret AS text), 1 / 0"), {"secret": "hunter2"})
        assert "hunter2" not in str(caught.value)
    finally:
        await engine.dispose()


async def test_a_transaction_that_idles_is_ended_before_a_successor_waits_long(database_url: str) -> None:
    """A planner that is stopped in the middle of one holds the lease's row: the next must not wait a minute for it."""
    engine = open_engine(database_url, pool=1, application="tests")
    try:
        async with engine.connect() as connection:
            shown = await connection.execute(text("SHOW idle_in_transaction_session_timeout"))
            assert shown.scalar_one() == "15s"
    finally:
        await engine.dispose()


async def test_the_server_asks_soon_whether_a_silent_client_is_still_there(database_url: str) -> None:
    engine = open_engine(database_url, pool=1, application="tests")
    try:
        async with engine.connect() as connection:
            # What was asked for; what is in force is nothing where the connection needs no network.
            asked = await connection.execute(
                text(r"SELECT name, reset_val FROM pg_settings WHERE name LIKE 'tcp\_keepalives\_%'")
            )
            values = {row.name.removeprefix("tcp_keepalives_"): int(row.reset_val) for row in asked}
    finally:
        await engine.dispose()
    assert values["idle"] + values["count"] * values["interval"] == 60


@pytest.mark.parametrize(("read_only", "shown"), [(False, "off"), (True, "on")])
async def test_an_engine_for_reads_writes_nothing(database_url: str, read_only: bool, shown: str) -> None:
    engine = open_engine(database_url, pool=1, application="test", read_only=read_only)
    try:
        async with engine.connect() as connection:
            assert (await connection.execute(text("SHOW transaction_read_only"))).scalar_one() == shown
    finally:
        await engine.dispose()


async def test_what_only_a_burst_needed_is_closed_and_opened_again(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "IDLE_S", 0.05)
    engine = open_engine(database_url, pool=4, application="a burst")
    looked_at = open_engine(database_url, pool=1, application="tests")
    count = text("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'a burst'")

    async def burst() -> set[int]:
        all_have_one = asyncio.Barrier(4)

        async def served_by() -> int:
            async with engine.connect() as connection:
                pid: int = (await connection.execute(text("SELECT pg_backend_pid()"))).scalar_one()
                await all_have_one.wait()
                return pid

        return set(await asyncio.gather(*(served_by() for _ in range(4))))

    async def opened() -> int:
        async with looked_at.connect() as connection:
            number: int = (await connection.execute(count)).scalar_one()
            return number

    try:
        async with asyncio.timeout(20):
            assert len(await burst()) == 4
            while await opened() > 1:
                async with engine.connect() as connection:
                    await connection.execute(text("SELECT 1"))
            assert len(await burst()) == 4
    finally:
        await engine.dispose()
        await looked_at.dispose()

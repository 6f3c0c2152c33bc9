"""What the engine keeps to itself."""

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

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

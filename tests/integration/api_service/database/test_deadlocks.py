"""A request that the database ends to break a deadlock is repeated: nobody sees that."""

import asyncio
from collections.abc import Awaitable, Callable

import httpx
import pytest
from sqlalchemy import text

from reservation_core.runtime.wiring import Runtime
from tests.database.sql import connection_of
from tests.integration.api_service.bookings.calendars import add_nodes, booked, execute
from tests.waiting import eventually

Call = Callable[[httpx.AsyncClient, str], Awaitable[httpx.Response]]


@pytest.fixture(autouse=True)
async def lab(runtime: Runtime) -> None:
    """Two cards."""
    await add_nodes(runtime, a=("h100", 2))


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda client, booking: client.delete(f"/v1/bookings/{booking}"), id="cancel"),
        pytest.param(
            lambda client, booking: client.patch(f"/v1/bookings/{booking}", json={"duration": "PT2H"}), id="change"
        ),
    ],
)
async def test_a_request_in_a_deadlock_is_repeated(alice: httpx.AsyncClient, runtime: Runtime, call: Call) -> None:
    booking = (await booked(alice))["id"]

    async def a_lock_is_waited_for() -> bool:
        found = await execute(
            runtime,
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
        )
        return bool(found.all())

    async with runtime.uow() as uow:
        rival = connection_of(uow)
        # The transaction that has waited for longer than this looks for a deadlock, and is the one to be ended.
        await rival.execute(text("SET LOCAL deadlock_timeout = '1min'"))
        await rival.execute(text("SELECT FROM reservations WHERE kind = 'booking' FOR UPDATE"))
        answer = asyncio.create_task(call(alice, booking))
        await eventually(a_lock_is_waited_for)
        await rival.execute(text("SELECT FROM users FOR UPDATE"))
        await rival.execute(text("SELECT FROM planner_lease FOR UPDATE"))
    assert (await answer).status_code == 200

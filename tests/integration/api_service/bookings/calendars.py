"""A lab's cards for the tests of bookings, and times that are whole minutes."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from reservation_core.domain.cards.node_reports import GpuReport, NodeReport
from reservation_core.domain.model import ForeignPod
from reservation_core.runtime.wiring import Runtime
from tests.database.sql import sql

HOUR = timedelta(hours=1)


async def add_nodes(runtime: Runtime, **nodes: tuple[str, int]) -> None:
    """Make the inventory these nodes, each of so many cards of a type."""
    reports = [node_report(name, gpu_type, cards) for name, (gpu_type, cards) in nodes.items()]
    async with runtime.uow() as uow:
        await uow.inventory.update(reports, list[ForeignPod](), runtime.clock.now())


def node_report(name: str, gpu_type: str, cards: int, *, ready: bool = True) -> NodeReport:
    """A node as a cluster reports it."""
    return NodeReport(
        name=name,
        ready=ready,
        schedulable=True,
        gpus=tuple(GpuReport(index, gpu_type, f"GPU-{name}-{index}", None) for index in range(cards)),
    )


def hour_to_come() -> datetime:
    """The first whole hour that is ten minutes away or more: longer than a test takes."""
    return (datetime.now(UTC) + timedelta(minutes=10)).replace(minute=0, second=0, microsecond=0) + HOUR


next_hour = hour_to_come()
"""The same throughout a test, though an hour may turn meanwhile: set anew before each (`conftest.py`)."""


def at(hours: float = 1, minutes: int = 0) -> datetime:
    """A whole hour so many hours after the next one."""
    return next_hour + timedelta(hours=hours, minutes=minutes)


def said(moment: datetime) -> str:
    """As answers have it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def asked(start: datetime | None = None, **fields: Any) -> dict[str, Any]:
    """A request for a booking: one GPU for an hour, by default."""
    body: dict[str, Any] = {"gpus": 1, "start": (start or at()).isoformat(), **fields}
    if "end" not in body:
        body.setdefault("duration", "PT1H")
    return body


async def booked(client: httpx.AsyncClient, start: datetime | None = None, **fields: Any) -> dict[str, Any]:
    """A booking that was made."""
    response = await client.post("/v1/bookings", json=asked(start, **fields))
    assert response.status_code == 201, response.text
    answer: dict[str, Any] = response.json()
    return answer


async def booked_now(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    """A booking that was made, whose slot it is: from this minute on. Asks anew where the minute turned meanwhile."""
    while True:
        minute = datetime.now(UTC).replace(second=0, microsecond=0)
        response = await client.post("/v1/bookings", json=asked(minute, **fields))
        if response.status_code == 201:
            answer: dict[str, Any] = response.json()
            return answer
        assert minute < datetime.now(UTC).replace(second=0, microsecond=0), response.text


async def ledger(runtime: Runtime, booking_id: str) -> list[tuple[str, int, datetime, datetime]]:
    """The open rows of a reservation: node, index, start, end."""
    async with runtime.uow() as uow:
        rows = await sql(
            uow,
            "SELECT n.name, g.index, lower(a.during), upper(a.during) FROM allocations a "
            "JOIN gpus g ON g.id = a.gpu_id JOIN nodes n ON n.id = g.node_id "
            "WHERE a.reservation_id = :id AND a.released_at IS NULL ORDER BY 1, 2",
            id=booking_id,
        )
        return [tuple(row) for row in rows]


async def execute(runtime: Runtime, statement: str, **values: Any) -> Any:
    """A statement of the test's own."""
    async with runtime.uow() as uow:
        return await sql(uow, statement, **values)


async def kinds_of(runtime: Runtime, reservation_id: str) -> list[str]:
    """The kinds of a reservation's events, in order."""
    found = await execute(runtime, "SELECT kind FROM events WHERE reservation_id = :id ORDER BY id", id=reservation_id)
    return [row.kind for row in found]

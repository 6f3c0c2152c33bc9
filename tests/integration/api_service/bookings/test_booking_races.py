"""Many people book, move and cancel at once: what is stored then hangs together, and nobody saw a server error."""

import asyncio
import random
from collections import Counter
from datetime import timedelta

import httpx
import pytest

from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings.calendars import add_nodes, asked, at, execute

WORKERS = 8
ACTS = 25


@pytest.fixture(autouse=True)
async def lab(runtime: Runtime) -> None:
    """Few enough cards that everybody is in everybody's way."""
    await add_nodes(runtime, a=("h100", 2), b=("h100", 2), c=("t4", 2))


async def _act(client: httpx.AsyncClient, chance: random.Random, mine: list[str]) -> httpx.Response:
    start = at(chance.randint(1, 8), minutes=chance.choice([0, 0, 30]))
    lasts = timedelta(minutes=chance.choice([30, 60, 120]))
    match chance.choice(["book", "book", "gang", "series", "move", "extend", "cancel"]):
        case "move" if mine:
            return await client.patch(f"/v1/bookings/{chance.choice(mine)}", json={"start": start.isoformat()})
        case "extend" if mine:
            return await client.patch(f"/v1/bookings/{chance.choice(mine)}", json={"duration": lasts.total_seconds()})
        case "cancel" if mine:
            return await client.delete(f"/v1/bookings/{mine.pop(chance.randrange(len(mine)))}")
        case "series":
            fields = {"recurrence": {"rrule": "FREQ=DAILY;COUNT=3", "on_conflict": "skip"}}
        case "gang":
            fields = {"gpus": chance.choice([1, 2]), "nodes": 2}
        case _:
            fields = {"gpus": chance.choice([1, 2])}
    response = await client.post("/v1/bookings", json=asked(start, duration=lasts.total_seconds(), **fields))
    if response.status_code == 201:
        answer = response.json()
        mine += [booking["id"] for booking in answer.get("items", [answer])]
    return response


async def test_whatever_people_do_at_once(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, root: httpx.AsyncClient, runtime: Runtime
) -> None:
    answered: Counter[int] = Counter()

    async def worker(number: int) -> None:
        chance = random.Random(number)
        client = (alice, bob, root)[number % 3]
        mine: list[str] = []
        for _ in range(ACTS):
            answered[(await _act(client, chance, mine)).status_code] += 1

    await asyncio.gather(*(worker(number) for number in range(WORKERS)))
    assert set(answered) <= {200, 201, 409, 503}, "503: the database is busy"
    assert answered[201] > WORKERS
    assert answered[200] > WORKERS
    wrong = await execute(
        runtime,
        "SELECT r.id, r.status, r.gpus * r.nodes AS asked, count(a.id) AS cards,"
        " count(DISTINCT g.node_id) AS nodes, r.nodes AS nodes_asked "
        "FROM reservations r JOIN bookings b ON b.id = r.id "
        "LEFT JOIN allocations a ON a.reservation_id = r.id AND a.released_at IS NULL "
        " AND a.during = tstzrange(b.starts_at, b.ends_at) "
        "LEFT JOIN gpus g ON g.id = a.gpu_id "
        "GROUP BY r.id, r.status, r.gpus, r.nodes "
        "HAVING count(a.id) <> CASE r.status WHEN 'confirmed' THEN r.gpus * r.nodes ELSE 0 END "
        " OR (r.status = 'confirmed' AND count(DISTINCT g.node_id) <> r.nodes)",
    )
    assert wrong.all() == []
    [strays] = await execute(
        runtime,
        "SELECT count(*) AS rows FROM allocations a JOIN bookings b ON b.id = a.reservation_id "
        "WHERE a.released_at IS NULL AND a.during <> tstzrange(b.starts_at, b.ends_at)",
    )
    assert strays.rows == 0

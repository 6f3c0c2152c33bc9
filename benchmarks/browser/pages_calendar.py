"""What the calendar's page costs: two weeks of 1,000 cards with 5,000 bookings, by types, by nodes and by cards.

Over real HTTP to the API service in a process of its own, whole answers, compressed as browsers ask for them; each is
read anew. Forty people have the bookings, and whoever looks has some of them.
"""

import asyncio
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import httpx
import uvloop
from sqlalchemy import text

from benchmarks.measuring.api_process import api_process
from benchmarks.measuring.databases import add_cluster, database, engine
from benchmarks.measuring.figures import Figure
from benchmarks.measuring.references import LOOP, against, loop_ms

BOOKINGS = 5_000
ROUNDS = 5
CALLS = 20
_WARM = 5

# Each card has five bookings in the two weeks to come, which follow each other with gaps.
FILL = """
WITH people AS (
    INSERT INTO users (name, role, created_at) SELECT 'person' || n, 'user', now() FROM generate_series(1, 39) n
    RETURNING id
), owners AS (
    SELECT id, row_number() OVER (ORDER BY id) - 1 AS n
    FROM (SELECT id FROM people UNION SELECT id FROM users WHERE name = 'bench') AS everybody
), typed AS (
    UPDATE gpus SET gpu_type = (ARRAY['a100-80gb', 'h100', 'h200', 'l40s'])[1 + node_id % 4] RETURNING id, gpu_type
), cards AS (SELECT id, gpu_type, row_number() OVER (ORDER BY id) - 1 AS n FROM typed),
slots AS (
    SELECT 'bkg-' || lpad(CAST(c.n * :each + k AS text), 8, '0') AS id, c.id AS gpu_id, c.gpu_type, o.id AS user_id,
           date_trunc('day', now()) + (k * 66 + 6 + (c.n * 7 + k * 11) % 24) * interval '1 hour' AS starts_at,
           (4 + (c.n * 5 + k * 13) % 36) * interval '1 hour' AS length
    FROM cards c CROSS JOIN generate_series(0, :each - 1) k JOIN owners o ON o.n = (c.n * 3 + k) % 40
), rows AS (
    INSERT INTO reservations (id, kind, user_id, name, status, reason_code, reason, gpus, gpu_type, nodes, duration,
                              priority, workload, created_at, changed_at)
    SELECT id, 'booking', user_id, 'runs', 'confirmed', 'booked', 'x', 1, gpu_type, 1, length, 0, '{}', now(), now()
    FROM slots RETURNING id
), booked AS (
    INSERT INTO bookings (id, starts_at, ends_at) SELECT id, starts_at, starts_at + length FROM slots
)
INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at)
SELECT id, 0, gpu_id, 0, tstzrange(starts_at, starts_at + length), false, now() FROM slots
"""


def measure() -> list[Figure]:
    """The p95 of each."""
    with tempfile.TemporaryDirectory() as home, database() as url:
        uvloop.run(add_cluster(url, nodes=125, gpus_per_node=8))
        uvloop.run(fill(url))
        with api_process(url, Path(home)) as (address, token):
            return asyncio.run(_ask(address, token))


async def fill(url: str) -> None:
    """Put the bookings on the cards."""
    opened = engine(url)
    async with opened.begin() as connection:
        await connection.execute(text(FILL), {"each": BOOKINGS // 1000})
    async with opened.connect() as connection:
        autocommit = await connection.execution_options(isolation_level="AUTOCOMMIT")
        await autocommit.execute(text("VACUUM ANALYZE"))
    await opened.dispose()


async def _ask(address: str, token: str) -> list[Figure]:
    headers = {"Accept": "text/html", "Accept-Encoding": "gzip"}
    async with httpx.AsyncClient(base_url=address, headers=headers, timeout=60) as client:
        response = await client.post("/sign-in", data={"token": token})
        assert response.status_code == 303, response.text
        today = f"view=2weeks&from={datetime.now(UTC):%Y-%m-%d}"
        asked = {f"calendar_1000 by {by}": f"/calendar?{today}&by={by}" for by in ("type", "node", "card")}
        asked["calendar_1000, what has changed"] = f"/calendar/events?{today}&by=node"
        return [await _figure(client, path, name) for name, path in asked.items()]


async def _figure(client: httpx.AsyncClient, path: str, name: str) -> Figure:
    for _ in range(_WARM):
        await _timed(client, path)
    rounds: list[list[float]] = []
    loops: list[float] = []
    size = 0
    for _ in range(ROUNDS):
        loops.append(loop_ms())
        rounds.append([])
        for _ in range(CALLS):
            taken, size = await _timed(client, path)
            rounds[-1].append(taken)
    p95s = [sorted(times)[len(times) * 95 // 100 - 1] for times in rounds]
    middle = sorted(taken for times in rounds for taken in times)[ROUNDS * CALLS // 2]
    detail = f"p50 {middle:.0f} ms, {size / 1000:.0f} kB; {BOOKINGS:,} bookings on 1,000 GPUs, 14 days"
    return against(f"{name}, p95", p95s, loops, 8, unit=" ms", of=LOOP, detail=detail)


async def _timed(client: httpx.AsyncClient, path: str) -> tuple[float, int]:
    began = time.perf_counter()
    async with client.stream("GET", path) as response:
        body = await response.aread()
        taken = (time.perf_counter() - began) * 1000
        assert response.status_code == 200, body[:500]
        return taken, response.num_bytes_downloaded

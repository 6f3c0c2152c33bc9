"""`slots` and `availability` over 30 days on 1,000 GPUs with 20,000 bookings: the answer's time over real HTTP.

One connection asks one question after another, each another one: what is measured is the whole answer, from the
request's first byte to the answer's last, by the API service in a process of its own.
"""

import asyncio
import random
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import httpx
import uvloop
from sqlalchemy import text

from benchmarks.measuring.api_process import api_process
from benchmarks.measuring.databases import add_cluster, database, engine
from benchmarks.measuring.figures import Figure
from benchmarks.measuring.references import LOOP, against, loop_ms

BOOKINGS = 20_000
DAYS = 30
ROUNDS = 5
CALLS = 100
_WARM = 10

# A card's bookings follow each other with gaps; 1,000 cards have 20 each.
FILL = """
WITH cards AS (SELECT id, row_number() OVER (ORDER BY id) - 1 AS n FROM gpus),
slots AS (
    SELECT 'bkg-' || lpad(CAST(row_number() OVER () AS text), 8, '0') AS id, c.id AS gpu_id,
           date_trunc('hour', now()) + (k * 36 + 1 + (c.n * 7 + k * 11) % 12) * interval '1 hour' AS starts_at,
           (4 + (c.n * 5 + k * 13) % 20) * interval '1 hour' AS length
    FROM cards c, generate_series(0, :each - 1) k
), rows AS (
    INSERT INTO reservations (id, kind, user_id, status, reason_code, reason, gpus, gpu_type, nodes, duration, priority,
                              workload, created_at, changed_at)
    SELECT s.id, 'booking', u.id, 'confirmed', 'booked', 'x', 1, 'h100', 1, s.length, 0, '{}', now(), now()
    FROM slots s, users u WHERE u.name = 'bench' RETURNING id
), booked AS (
    INSERT INTO bookings (id, starts_at, ends_at) SELECT id, starts_at, starts_at + length FROM slots
)
INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at)
SELECT id, 0, gpu_id, 0, tstzrange(starts_at, starts_at + length), false, now() FROM slots
"""


def measure() -> list[Figure]:
    """Rounds alternate between the two questions; the p99 of each."""
    loops: list[float] = []
    slots: list[list[float]] = []
    counts: list[list[float]] = []
    with tempfile.TemporaryDirectory() as home, database() as url:
        uvloop.run(add_cluster(url, nodes=125, gpus_per_node=8))
        uvloop.run(fill(url))
        with api_process(url, Path(home)) as (address, token):
            asyncio.run(_ask(address, token, _slots, _WARM))
            asyncio.run(_ask(address, token, _counts, _WARM))
            for _ in range(ROUNDS):
                loops.append(loop_ms())
                slots.append(asyncio.run(_ask(address, token, _slots, CALLS)))
                counts.append(asyncio.run(_ask(address, token, _counts, CALLS)))
    detail = f"{BOOKINGS:,} bookings on 1,000 GPUs, {DAYS} days, {CALLS} different questions a round"
    return [_figure("slots", slots, loops, detail), _figure("availability", counts, loops, detail)]


def _figure(name: str, rounds: list[list[float]], loops: list[float], detail: str) -> Figure:
    p99s = [sorted(times)[int(len(times) * 0.99) - 1] for times in rounds]
    middle = sorted(time for times in rounds for time in times)[len(rounds) * CALLS // 2]
    told = f"p50 {middle:.1f} ms; {detail}"
    return against(f"{name}, p99", p99s, loops, 5, unit=" ms", of=LOOP, detail=told)


async def fill(url: str) -> None:
    """Put the bookings on the cards."""
    opened = engine(url)
    async with opened.begin() as connection:
        await connection.execute(text(FILL), {"each": BOOKINGS // 1000})
    async with opened.connect() as connection:
        autocommit = await connection.execution_options(isolation_level="AUTOCOMMIT")
        await autocommit.execute(text("VACUUM ANALYZE"))
    await opened.dispose()


def _slots(chance: random.Random) -> str:
    shape = f"gpus={chance.choice([1, 2, 4, 8])}&nodes={chance.choice([1, 1, 2, 4])}"
    return f"/v1/bookings/slots?{shape}&duration={chance.randint(1, 72) * 3600}&{_window(chance)}"


def _counts(chance: random.Random) -> str:
    return f"/v1/availability?step={chance.choice([1, 2, 4, 24]) * 3600}&{_window(chance)}"


def _window(chance: random.Random) -> str:
    start = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(minutes=chance.randint(1, 600))
    end = start + timedelta(days=DAYS)
    return f"from={quote(start.isoformat())}&to={quote(end.isoformat())}"


async def _ask(address: str, token: str, question: object, calls: int) -> list[float]:
    chance = random.Random(calls)
    times: list[float] = []
    async with httpx.AsyncClient(base_url=address, headers={"Authorization": f"Bearer {token}"}) as client:
        for _ in range(calls):
            path = question(chance)  # type: ignore[operator]
            began = time.perf_counter()
            response = await client.get(path)
            times.append((time.perf_counter() - began) * 1000)
            response.raise_for_status()
    return times

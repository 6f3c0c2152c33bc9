"""What the pages cost: Now with 4,000 cards, and 500 pages that are open while nothing changes.

`now_4000`: over real HTTP to the API service in a process of its own, whole answers, compressed as browsers ask for
them. Something is recorded before each, so that every one of them reads all cards anew; what the same costs while
nothing happens, and what an open page asks for when something did, is told beside it. Of one type no card is free: for
such a type the calendar is searched.
`sse_idle`: as many connections as pages would hold, and what the API service's memory and processor time are with them.
"""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil
import uvloop
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from benchmarks.ledger.calendar_reads import fill
from benchmarks.measuring.api_process import api_process
from benchmarks.measuring.databases import add_cluster, database, engine
from benchmarks.measuring.do_nothing import SERVER, do_nothing
from benchmarks.measuring.figures import Figure
from benchmarks.measuring.references import LOOP, against, loop_ms

NODES, GPUS_PER_NODE = 500, 8
ROUNDS = 5
CALLS = 40
STREAMS = 500
IDLE_S = 20.0
_WARM = 5

# Every third card is held by a job of one of forty people; of the last type all are.
HOLD = """
WITH people AS (
    INSERT INTO users (name, role, created_at) SELECT 'person' || n, 'user', now() FROM generate_series(0, 39) n
    RETURNING id, name
), typed AS (
    UPDATE gpus SET gpu_type = (ARRAY['a100-80gb', 'h100', 'h200', 'l40s'])[1 + node_id % 4] RETURNING id, gpu_type
), slots AS (
    SELECT 'job-' || lpad(CAST(t.id AS text), 8, '0') AS id, t.id AS gpu_id, p.id AS user_id
    FROM typed t JOIN people p ON p.name = 'person' || t.id % 40 WHERE t.id % 3 = 0 OR t.gpu_type = 'l40s'
), rows AS (
    INSERT INTO reservations (id, kind, user_id, status, reason_code, reason, gpus, gpu_type, nodes, duration, priority,
                              workload, created_at, changed_at, attempt, started_at, ends_at)
    SELECT id, 'job', user_id, 'running', 'running', 'x', 1, 'h100', 1, interval '50 min', 0, '{}', now(), now(), 1,
           now(), now() + interval '50 min'
    FROM slots RETURNING id
)
INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at)
SELECT id, 1, gpu_id, 0, tstzrange(now() - interval '1 minute', now() + interval '5 minutes'), true, now() FROM slots
"""
# One card's holder goes on to have it for longer: one node is different from before.
CHANGE = """
WITH longer AS (
    UPDATE allocations SET during = tstzrange(lower(during), upper(during) + interval '1 second')
    WHERE id = (SELECT id FROM allocations WHERE held ORDER BY id OFFSET :number LIMIT 1) RETURNING reservation_id
)
INSERT INTO events (reservation_id, at, actor, kind, before, after, reason_code, reason, data)
SELECT reservation_id, now(), 'bench', 'extended', 'running', 'running', 'running', 'x', '{}' FROM longer
"""


def measure() -> list[Figure]:
    """Both."""
    with tempfile.TemporaryDirectory() as home, database() as url:
        uvloop.run(add_cluster(url, nodes=NODES, gpus_per_node=GPUS_PER_NODE))
        uvloop.run(fill(url))
        uvloop.run(_hold(url))
        with api_process(url, Path(home)) as (address, token):
            cookie = asyncio.run(_sign_in(address, token))
            # First: memory that other requests have left would be taken for these.
            idle = asyncio.run(_idle(address, cookie))
            return [asyncio.run(_now(address, cookie, url)), *idle]


async def _hold(url: str) -> None:
    opened = engine(url)
    async with opened.begin() as connection:
        # Bookings for this very time would stand in the way.
        await connection.execute(text("DELETE FROM allocations WHERE lower(during) < now() + interval '10 minutes'"))
        await connection.execute(text(HOLD))
    async with opened.connect() as connection:
        autocommit = await connection.execution_options(isolation_level="AUTOCOMMIT")
        await autocommit.execute(text("VACUUM ANALYZE"))
    await opened.dispose()


async def _sign_in(address: str, token: str) -> str:
    async with httpx.AsyncClient(base_url=address) as client:
        response = await client.post("/sign-in", data={"token": token})
        assert response.status_code == 303, response.text
        return "; ".join(f"{name}={value}" for name, value in client.cookies.items())


async def _now(address: str, cookie: str, url: str) -> Figure:
    headers = {"Cookie": cookie, "Accept": "text/html", "Accept-Encoding": "gzip"}
    opened = engine(url)
    fresh: list[list[float]] = []
    loops: list[float] = []
    still: list[float] = []
    parts: list[float] = []
    sizes: dict[str, int] = {}
    async with httpx.AsyncClient(base_url=address, headers=headers, timeout=60) as client:

        async def page() -> str:
            return await _get(client, "/now", sizes)

        async def part(before: str) -> str:
            since = before.partition('name="since" value="')[2].partition('"')[0]
            return await _get(client, f"/now/changes?since={since}", sizes)

        shown = ""
        for _ in range(_WARM):
            shown = await page()
        spent = _cpu_s(_service()), _postgres_s()
        for round_ in range(ROUNDS):
            loops.append(loop_ms())
            fresh.append([])
            for call in range(CALLS):
                await _change(opened, round_ * CALLS + call)
                fresh[-1].append((await _timed(page))[0])
                still.append((await _timed(page))[0])
        own, beside = (
            (after - before) * 1000 / (2 * ROUNDS * CALLS)
            for after, before in zip((_cpu_s(_service()), _postgres_s()), spent, strict=True)
        )
        shown = await page()
        for call in range(CALLS):
            await _change(opened, call)
            taken, shown = await _timed(lambda shown=shown: part(shown))  # type: ignore[misc]
            parts.append(taken)
    await opened.dispose()
    detail = (
        f"p50 {_percentile([ms for times in fresh for ms in times], 50):.0f} ms, {sizes['/now'] / 1000:.0f} kB; "
        f"while nothing happens p95 {_percentile(still, 95):.0f} ms; what an open page asks for when one node is "
        f"different p95 {_percentile(parts, 95):.0f} ms, {sizes['/now/changes'] / 1000:.1f} kB; "
        f"processor time for a page of either kind {own:.0f} ms, of PostgreSQL {beside:.0f} ms; 20,000 bookings"
    )
    p95s = [_percentile(times, 95) for times in fresh]
    return against("now_4000, p95 of the page after a change", p95s, loops, 8, unit=" ms", of=LOOP, detail=detail)


async def _get(client: httpx.AsyncClient, path: str, sizes: dict[str, int]) -> str:
    async with client.stream("GET", path) as response:
        text_ = (await response.aread()).decode()
        assert response.status_code == 200, (path, response.status_code, text_[:500])
        sizes[path.partition("?")[0]] = response.num_bytes_downloaded
        return text_


async def _timed(asked: Callable[[], Awaitable[str]]) -> tuple[float, str]:
    began = time.perf_counter()
    answer = await asked()
    return (time.perf_counter() - began) * 1000, answer


async def _change(opened: AsyncEngine, number: int) -> None:
    async with opened.begin() as connection:
        await connection.execute(text(CHANGE), {"number": number})


async def _idle(address: str, cookie: str) -> list[Figure]:
    service = _service()
    async with httpx.AsyncClient(base_url=address, headers={"Cookie": cookie}) as client:
        for _ in range(_WARM):
            (await client.get("/queue")).raise_for_status()
    before = service.memory_info().rss
    writers = await asyncio.gather(*(_listen(address, cookie) for _ in range(STREAMS)))
    await asyncio.sleep(5)
    at, spent = time.monotonic(), _cpu_s(service)
    postgres = _postgres_s()
    await asyncio.sleep(IDLE_S)
    taken = time.monotonic() - at
    busy_ms = (_cpu_s(service) - spent) / taken * 1000
    beside = (_postgres_s() - postgres) / taken * 100
    memory = (service.memory_info().rss - before) / 1e6
    for writer in writers:
        writer.close()
    with do_nothing() as bare:
        bare_memory = [bare.memory_mb]
    detail = f"{STREAMS} connections; PostgreSQL beside it {beside:.1f} %"
    return [
        against("sse_idle, memory", [memory], bare_memory, 2.5, unit=" MB", of=SERVER),
        against(
            "sse_idle, processor time a second",
            [busy_ms],
            [loop_ms(time.process_time)],
            5,
            unit=" ms",
            of=LOOP,
            detail=detail,
        ),
    ]


async def _listen(address: str, cookie: str) -> asyncio.StreamWriter:
    place = urlsplit(address)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    writer.write(
        f"GET /live?topics=now,queue HTTP/1.1\r\nHost: {place.netloc}\r\nAccept: text/event-stream\r\n"
        f"Cookie: {cookie}\r\n\r\n".encode()
    )
    head = await reader.readuntil(b"\r\n\r\n")
    assert b" 200 " in head.partition(b"\r\n")[0], head
    await reader.readuntil(b"retry:")
    return writer


def _service() -> psutil.Process:
    return next(child for child in psutil.Process().children() if "benchmarks.measuring.api_process" in child.cmdline())


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _postgres_s() -> float:
    own = psutil.Process().children(recursive=True)
    return sum(_cpu_s(process) for process in own if "postgres" in process.name())


def _percentile(times: list[float], percent: int) -> float:
    return sorted(times)[max(0, len(times) * percent // 100 - 1)]

"""What a long history costs: each repeated statement and the endpoints above them, beside a database without one.

Both databases lie on one server and have the same present. Of each statement's sets of values the worst counts; times
are those of warm buffers.
"""

import asyncio
import statistics
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import httpx
from sqlalchemy import make_url

from benchmarks.long_history.history import Past, Present, build
from benchmarks.long_history.reads import BY_THE_ROW, repeated
from benchmarks.measuring.api_process import api_process
from benchmarks.measuring.databases import database, engine
from benchmarks.measuring.figures import Figure
from benchmarks.waiting.explaining import explain
from reservation_core.adapters.postgres.connection.engine import open_engine
from reservation_core.adapters.postgres.connection.migrating import upgrade

MOST_BUFFERS = 5_000
MOST_TIMES = 3.0
LEAST_MS = 2.0
"""What takes less is not compared: the clock and the plan's start are most of it."""
_ROUNDS = 3
_CALLS = 20


@dataclass(frozen=True, slots=True)
class _Read:
    """Executions of one statement; `expected` is what it took without a history, for as many rows."""

    buffers: int
    rows: float
    times: list[float]

    def expected(self, name: str, without: "_Read") -> list[float]:
        more = max(self.rows / max(without.rows, 1.0), 1.0) if name in BY_THE_ROW else 1.0
        return [ms * more for ms in without.times]


def measure() -> list[Figure]:
    """Buffers of each statement, and times of statements and endpoints as multiples of those without a history."""
    present, past, now = Present(), Past(), datetime.now(UTC)
    with tempfile.TemporaryDirectory() as home, database() as bare:
        long = str(asyncio.run(_second(bare)))
        asyncio.run(build(bare, present, None, now))
        asyncio.run(build(long, present, past, now))
        figures = asyncio.run(_statements(bare, long, present, past, now))
        without = _endpoints(bare, Path(home) / "bare", now)
        on_history = _endpoints(long, Path(home) / "long", now)
    return figures + [_times(f"GET {path}", without[path], times) for path, times in on_history.items()]


async def _second(url: str) -> str:
    opened = engine(url)
    async with opened.connect() as connection:
        autocommit = await connection.execution_options(isolation_level="AUTOCOMMIT")
        await autocommit.exec_driver_sql("CREATE DATABASE long_history")
    await opened.dispose()
    second = make_url(url).set(database="long_history").render_as_string(hide_password=False)
    await upgrade(second)
    return second


async def _statements(bare: str, long: str, present: Present, past: Past, now: datetime) -> list[Figure]:
    figures = []
    for name, cases in repeated(now, present.gpus, past.events).items():
        pairs = [(await _run(bare, name, values), await _run(long, name, values)) for values in cases]
        buffers = max(on_history.buffers for _, on_history in pairs)
        figures.append(Figure(f"{name}, buffers", "", [buffers], MOST_BUFFERS, at_least=False))
        times = [_times(name, on_history.expected(name, bare), on_history.times) for bare, on_history in pairs]
        figures.append(max(times, key=lambda figure: figure.median))
    return figures


async def _run(url: str, name: str, values: object) -> _Read:
    """Some executions, which are taken back."""
    opened = open_engine(url, pool=1, application="benchmarks")
    async with opened.connect() as connection, connection.begin() as taken_back:
        await explain(connection, name, values)  # type: ignore[arg-type]
        found = [await explain(connection, name, values) for _ in range(_ROUNDS)]  # type: ignore[arg-type]
        await taken_back.rollback()
    await opened.dispose()
    return _Read(found[-1].buffers, found[-1].plan["Actual Rows"], [read.ms for read in found])


def _times(name: str, without: list[float], on_history: list[float]) -> Figure:
    floor = max(statistics.median(without), LEAST_MS)
    ratios = [ms / floor for ms in on_history]
    detail = f"{statistics.median(on_history):.2f} ms; {statistics.median(without):.2f} ms without a history"
    if name in BY_THE_ROW:
        detail += f", for as many rows: {BY_THE_ROW[name]}"
    return Figure(f"{name}, time", " times", ratios, MOST_TIMES, at_least=False, detail=detail)


def _endpoints(url: str, home: Path, now: datetime) -> dict[str, list[float]]:
    year = quote((now - timedelta(days=365)).isoformat())
    on_the_hour = quote((now - timedelta(days=365)).replace(minute=0, second=0, microsecond=0).isoformat())
    paths = [
        "/metrics",
        "/v1/jobs",
        *(f"/v1/jobs?status={status}" for status in ("queued", "running", "starting", "succeeded", "failed")),
        "/v1/jobs?status=failed&user=person-3",
        "/v1/queue",
        "/v1/bookings",
        "/v1/bookings?status=released",
        "/v1/events",
        "/v1/events?kind=token_created",
        "/v1/events?subject=node-00001",
        *(f"/v1/usage?by={by}&from={year}" for by in ("user", "project", "gpu_type")),
        f"/v1/usage?by=user&from={year}&format=csv",
        *(f"/v1/usage?by=gpu_type&from={start}&step=P7D" for start in (year, on_the_hour)),
    ]
    home.mkdir()
    with api_process(url, home) as (address, token):
        return {path: _ask(address, token, path) for path in paths}


def _ask(address: str, token: str, path: str) -> list[float]:
    times = []
    with httpx.Client(base_url=address, headers={"Authorization": f"Bearer {token}"}, timeout=60) as client:
        client.get(path).raise_for_status()
        for _ in range(_CALLS):
            if path == "/metrics":
                time.sleep(1.05)  # what was read is used again for a second
            began = time.perf_counter()
            client.get(path).raise_for_status()
            times.append((time.perf_counter() - began) * 1000)
    return times

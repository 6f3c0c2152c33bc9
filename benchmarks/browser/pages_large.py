"""Large pages against the same pages with ten: Now with 1,000 nodes, and calendars of 80,000 bookings. And the use of
4,000 GPUs, of which no task of the browser's may be longer than 50 ms.

Both of a pair are served at the same time, by API services of their own, and asked in turns over real HTTP, so whatever
else the machine does falls on both. `server`: processor time of the API service for an answer after a change, which is
read anew; `server, nothing new`: for one that shares what was read for an earlier one. `usable`: in Chromium, from the
address to the drawn page after a change, the least of a round. Without Chromium or the pages' scripts there are no such
figures.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import httpx
import psutil
import uvloop
from playwright.async_api import Browser, Page
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from benchmarks.browser.pages import CHANGE, HOLD
from benchmarks.measuring.api_process import api_process
from benchmarks.measuring.databases import add_cluster, database, engine
from benchmarks.measuring.figures import Figure
from tests.web.browser import BUILT, find_chromium, open_browser, open_person, sign_in

FEW, MANY_NODES, MANY_BOOKINGS = 10, 1_000, 80_000
CARDS_PER_NODE = 8
TARGET = 3.0
ROUNDS = 5
CALLS = 20
LOADS = 5
_WARM = 5
_CALENDAR_NODES = 125
_USED_NODES = 500
_DAYS = 30

# The cards have bookings of six hours, which follow each other with gaps: 80,000 are four weeks of 1,000 GPUs. They are
# those of so many owners, of whom the one who looks is one.
BOOK = """
WITH people AS (
    INSERT INTO users (name, role, created_at)
    SELECT 'person' || n, 'user', now() FROM generate_series(1, :owners - 1) n RETURNING id
), owners AS (
    SELECT id, row_number() OVER (ORDER BY id) - 1 AS n
    FROM (SELECT id FROM people UNION SELECT id FROM users WHERE name = 'bench') AS everybody
), typed AS (
    UPDATE gpus SET gpu_type = (ARRAY['a100-80gb', 'h100', 'h200', 'l40s'])[1 + node_id % 4] RETURNING id, gpu_type
), cards AS (SELECT id, gpu_type, row_number() OVER (ORDER BY id) - 1 AS n, count(*) OVER () AS cards FROM typed),
slots AS (
    SELECT 'bkg-' || lpad(CAST(b.n AS text), 8, '0') AS id, c.id AS gpu_id, c.gpu_type, o.id AS user_id,
           date_trunc('day', now()) + interval '1 day'
               + (b.n / c.cards * 520 + c.n * 7 % 23 * 5) * interval '1 minute' AS starts_at
    FROM generate_series(0, :bookings - 1) AS b (n) JOIN cards c ON c.n = b.n % c.cards
    JOIN owners o ON o.n = (b.n * 3 + b.n / c.cards) % :owners
), rows AS (
    INSERT INTO reservations (id, kind, user_id, name, status, reason_code, reason, gpus, gpu_type, nodes, duration,
                              priority, workload, created_at, changed_at)
    SELECT id, 'booking', user_id, 'runs', 'confirmed', 'booked', 'x', 1, gpu_type, 1, interval '6 hours', 0, '{}',
           now(), now()
    FROM slots RETURNING id
), booked AS (
    INSERT INTO bookings (id, starts_at, ends_at) SELECT id, starts_at, starts_at + interval '6 hours' FROM slots
)
INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at)
SELECT id, 0, gpu_id, 0, tstzrange(starts_at, starts_at + interval '6 hours'), false, now() FROM slots
"""
# Something happens to a booking: what was read of a calendar is read again.
TOUCH = """
INSERT INTO events (reservation_id, at, actor, kind, before, after, reason_code, reason, data)
SELECT id, now(), 'bench', 'changed', status, status, 'booked', 'x', '{}' FROM reservations
WHERE id = 'bkg-' || lpad(CAST(CAST(:number AS integer) % 10 AS text), 8, '0')
"""
# Drawn: scripts have run and two frames are painted.
_DRAWN = """(selector) => new Promise((resolve) => {
  const look = () => document.querySelector(selector) === null ? setTimeout(look, 5)
    : requestAnimationFrame(() => requestAnimationFrame(() => resolve(performance.now())));
  look();
})"""


# Tasks of less than the limit are not told.
_TASK_LIMIT_MS = 50.0
_NOTE_TASKS = """
window.longest = 0;
new PerformanceObserver((list) => list.getEntries().forEach(({ duration }) => {
  window.longest = Math.max(window.longest, duration);
})).observe({ type: "longtask", buffered: true });
"""


@dataclass
class Served:
    """A site and what was measured of it: sums of a round."""

    address: str
    token: str
    engine: AsyncEngine
    process: psutil.Process
    client: httpx.AsyncClient
    page: Page | None = None
    sizes: dict[str, int] = field(default_factory=dict)

    def cpu_s(self) -> float:
        times = self.process.cpu_times()
        return times.user + times.system


def measure() -> list[Figure]:
    """Now, the use of GPUs, and calendars of forty people and of one."""
    with ExitStack() as stack:
        sites = [stack.enter_context(_site(nodes, HOLD, {})) for nodes in (FEW, MANY_NODES)]
        figures = asyncio.run(_compare("now_1000", sites, {"": "/now"}, "#cards article, #cards .cells a", CHANGE))
    with _site(_USED_NODES, HOLD, {}) as site:
        figures += asyncio.run(_tasks_figure(site))
    for name, owners in (("calendar_80000", 40), ("calendar_80000 of one owner", 1)):
        with ExitStack() as stack:
            sites = [
                stack.enter_context(_site(_CALENDAR_NODES, BOOK, {"bookings": bookings, "owners": owners}))
                for bookings in (FEW, MANY_BOOKINGS)
            ]
            asked = {
                f", {view} by {by}": f"/calendar?view={view}&by={by}&from={datetime.now(UTC):%Y-%m-%d}"
                for view, by in (("week", "type"), ("week", "node"), ("week", "card"), ("month", "type"))
            }
            figures += asyncio.run(_compare(name, sites, asked, "#calendar .ec-row-head", TOUCH))
    return figures


@contextmanager
def _site(nodes: int, fill: str, values: dict[str, int]) -> Iterator[tuple[str, str, str, psutil.Process]]:
    with tempfile.TemporaryDirectory() as home, database() as url:
        uvloop.run(add_cluster(url, nodes=nodes, gpus_per_node=CARDS_PER_NODE))
        uvloop.run(_fill(url, fill, values))
        before = {child.pid for child in psutil.Process().children()}
        with api_process(url, Path(home)) as (address, token):
            process = next(
                child
                for child in psutil.Process().children()
                if child.pid not in before and "benchmarks.measuring.api_process" in child.cmdline()
            )
            yield url, address, token, process


async def _fill(url: str, fill: str, values: dict[str, int]) -> None:
    opened = engine(url)
    async with opened.begin() as connection:
        await connection.execute(text(fill), values)
    async with opened.connect() as connection:
        autocommit = await connection.execution_options(isolation_level="AUTOCOMMIT")
        await autocommit.execute(text("VACUUM ANALYZE"))
    await opened.dispose()


async def _compare(
    name: str,
    sites: Sequence[tuple[str, str, str, psutil.Process]],
    asked: dict[str, str],
    drawn: str,
    change: str,
) -> list[Figure]:
    async with AsyncExitStack() as stack:
        browser = await _browser(stack)
        few, many = [await stack.enter_async_context(_served(site, browser)) for site in sites]
        figures = []
        for words, path in asked.items():
            figures.append(await _server_figure(f"{name}{words}, server", few, many, path, change))
            figures.append(await _server_figure(f"{name}{words}, server, nothing new", few, many, path, None))
            if browser is not None:
                figures.append(await _load_figure(f"{name}{words}", few, many, path, drawn, change))
        return figures


async def _browser(stack: AsyncExitStack) -> Browser | None:
    chromium = find_chromium()
    if chromium is None or not BUILT.exists():
        return None
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    return await stack.enter_async_context(open_browser(chromium, Path(folder)))


@asynccontextmanager
async def _served(site: tuple[str, str, str, psutil.Process], browser: Browser | None) -> AsyncIterator[Served]:
    url, address, token, process = site
    headers = {"Accept": "text/html", "Accept-Encoding": "gzip"}
    opened = engine(url)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(httpx.AsyncClient(base_url=address, headers=headers, timeout=60))
        response = await client.post("/sign-in", data={"token": token})
        assert response.status_code == 303, response.text
        served = Served(address, token, opened, process, client)
        if browser is not None:
            person = await stack.enter_async_context(
                open_person(browser, address.rstrip("/"), viewport={"width": 1440, "height": 900})
            )
            await sign_in(person.page, token)
            await person.page.goto("about:blank")  # nothing follows what happens while answers are measured
            served.page = person.page
        yield served
    await opened.dispose()


async def _server_figure(name: str, few: Served, many: Served, path: str, change: str | None) -> Figure:
    numbers = count()

    async def answer(site: Served) -> float:
        if change is not None:
            await _record(site, change, next(numbers))
        began = site.cpu_s()
        async with site.client.stream("GET", path) as response:
            body = await response.aread()
            assert response.status_code == 200, body[:500]
            site.sizes[path] = response.num_bytes_downloaded
        return site.cpu_s() - began

    for site in (few, many):
        for _ in range(_WARM):
            await answer(site)
    rounds: list[tuple[float, float]] = []
    for _ in range(ROUNDS):
        spent = {0: 0.0, 1: 0.0}
        for _ in range(CALLS):
            for number, site in enumerate((few, many)):
                spent[number] += await answer(site)
        rounds.append((spent[0] * 1000 / CALLS, spent[1] * 1000 / CALLS))
    least = min(own for own, _ in rounds), min(own for _, own in rounds)
    detail = (
        f"{least[1]:.1f} ms against {least[0]:.1f} ms; "
        f"{many.sizes[path] / 1000:.1f} kB against {few.sizes[path] / 1000:.1f} kB"
    )
    ratios = [after / before for before, after in rounds]
    return Figure(f"{name} ÷ with {FEW}", "x", ratios, TARGET, at_least=False, detail=detail)


async def _record(site: Served, change: str, number: int) -> None:
    async with site.engine.begin() as connection:
        await connection.execute(text(change), {"number": number % 20})


async def _load_figure(name: str, few: Served, many: Served, path: str, drawn: str, change: str) -> Figure:
    numbers = count()

    async def load(site: Served) -> float:
        assert site.page is not None
        await site.page.goto("about:blank")  # what is still open would read the change, too
        await _record(site, change, next(numbers))
        await site.page.goto(site.address.rstrip("/") + path, wait_until="commit")
        return float(await site.page.evaluate(_DRAWN, drawn))

    for site in (few, many):
        await load(site)
    rounds: list[tuple[float, float]] = []
    for _ in range(ROUNDS):
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(LOADS):
            for taken, site in zip(times, (few, many), strict=True):
                taken.append(await load(site))
        rounds.append((min(times[0]), min(times[1])))
    for site in (few, many):
        assert site.page is not None
        await site.page.goto("about:blank")
    least = min(own for own, _ in rounds), min(own for _, own in rounds)
    detail = f"{least[1]:.0f} ms against {least[0]:.0f} ms"
    ratios = [after / before for before, after in rounds]
    return Figure(f"{name}, usable ÷ with {FEW}", "x", ratios, TARGET, at_least=False, detail=detail)


async def _tasks_figure(site: tuple[str, str, str, psutil.Process]) -> list[Figure]:
    """The least of a round: the machine may be busy with something else during a load, but not during each."""
    async with AsyncExitStack() as stack:
        browser = await _browser(stack)
        if browser is None:
            return []
        served = await stack.enter_async_context(_served(site, browser))
        assert served.page is not None
        await served.page.context.add_init_script(_NOTE_TASKS)

        async def longest() -> float:
            assert served.page is not None
            await served.page.goto(served.address.rstrip("/") + "/now?view=use", wait_until="commit")
            await served.page.evaluate(_DRAWN, "#cards:not(:has(.later)) .cells")
            return float(await served.page.evaluate("window.longest"))

        await longest()
        rounds = [min([await longest() for _ in range(LOADS)]) for _ in range(ROUNDS)]
    detail = f"{min(rounds):.0f} ms; 0: all were shorter than the limit"
    ratios = [taken / _TASK_LIMIT_MS for taken in rounds]
    name = f"use_{_USED_NODES * CARDS_PER_NODE}, longest task ÷ {_TASK_LIMIT_MS:.0f} ms"
    return [Figure(name, "x", ratios, 1.0, at_least=False, detail=detail)]

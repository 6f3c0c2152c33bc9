"""Now with 8,000 GPUs in a browser: it is read, chosen from and used by keyboard, and keeps up with what changes.

Tables with long names are readable on a desktop and on a phone.

No system of this machine has so many: the API serves what was written into its database.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, expect

from api_service.app import create_app
from api_service.server import serve
from reservation_core.domain.cards.node_reports import GpuReport, NodeReport
from reservation_core.domain.model import ForeignPod
from reservation_core.domain.statuses import Role
from reservation_core.runtime.settings.components import ApiSettings
from reservation_core.runtime.wiring import Runtime, open_runtime
from tests.database.sql import sql
from tests.waiting import PATIENCE_S
from tests.web.browser import Person, assert_accessible, open_person, sign_in
from tests.web.conftest import Screenshot
from tests.web.layout import assert_apart

NODES, CARDS, RACK = 1000, 8, 40
NAME = "gpu-r{0:02}-dgx-in-the-second-hall-of-the-new-building-n{1:03}.cluster.example.org"
LAST = NAME.format((NODES - 1) // RACK, NODES - 1)
LONG = "a" * 60 + "_experiment_" + "b" * 60
# Every third GPU is held by a job of one of forty people, the first two of the last node by alice's.
HOLD = """
WITH people AS (
    INSERT INTO users (name, role, created_at)
    SELECT 'person' || n || '@' || repeat('university', 9), 'user', now() FROM generate_series(0, 39) n
    RETURNING id, name
), slots AS (
    SELECT 'job-' || lpad(CAST(g.id AS text), 8, '0') AS id, g.id AS gpu_id, p.id AS user_id
    FROM gpus g JOIN people p ON p.name LIKE 'person' || g.id % 40 || '@%' JOIN nodes n ON n.id = g.node_id
    WHERE g.id % 3 = 0 AND n.name <> :last
    UNION ALL
    SELECT 'job-' || lpad(CAST(g.id AS text), 8, '0'), g.id, u.id
    FROM gpus g JOIN nodes n ON n.id = g.node_id JOIN users u ON u.name = 'alice' WHERE n.name = :last AND g.index < 2
), rows AS (
    INSERT INTO reservations (id, kind, user_id, status, reason_code, reason, gpus, gpu_type, nodes, duration, priority,
                              workload, created_at, changed_at, attempt, started_at, ends_at, name)
    SELECT id, 'job', user_id, 'running', 'running', 'x', 1, 'h100', 1, interval '2 hours', 0,
           '{"command": ["true"]}', now(), now(), 1, now(), now() + interval '2 hours', :long
    FROM slots RETURNING id
), told AS (
    INSERT INTO events (reservation_id, at, actor, kind, before, after, reason_code, reason, data)
    SELECT id, now(), 'system', 'running', 'starting', 'running', 'running', 'x', '{}' FROM slots
)
INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at)
SELECT id, 1, gpu_id, 0, tstzrange(now() - interval '1 minute', now() + interval '2 hours'), true, now() FROM slots
"""
WAIT = """
INSERT INTO reservations (id, kind, user_id, status, reason_code, reason, gpus, gpu_type, nodes, duration, priority,
                          workload, created_at, changed_at, name)
SELECT 'job-w' || lpad(CAST(u.id AS text), 7, '0'), 'job', u.id, 'queued', 'waiting_for_gpus',
       'No node has 8 free GPUs of type h100. The next are expected at 2030-01-01T20:15:00Z.', 8, 'h100', 2,
       interval '26 hours', 5, '{"command": ["true"]}', now(), now(), :long
FROM users u
"""
# What holds a GPU of that name is over.
END = """
WITH over AS (
    UPDATE allocations SET held = false, released_at = now(), during = tstzrange(lower(during), now())
    WHERE gpu_id = (SELECT g.id FROM gpus g JOIN nodes n ON n.id = g.node_id WHERE n.name = :node AND g.index = :index)
    RETURNING reservation_id
), ended AS (
    UPDATE reservations SET status = 'succeeded', finished_at = now() WHERE id = (SELECT reservation_id FROM over)
)
INSERT INTO events (reservation_id, at, actor, kind, before, after, reason_code, reason, data)
SELECT reservation_id, now(), 'system', 'succeeded', 'ending', 'succeeded', 'completed', 'x', '{}' FROM over
"""


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(
    request: pytest.FixtureRequest, chromium: Path, database_url: str, tmp_path: Path
) -> AsyncIterator[Runtime]:
    """So many cards, in a database; a parameter is the form of the nodes' names."""
    name = getattr(request, "param", NAME)
    async with open_runtime(ApiSettings(home=tmp_path / "home", local_gpus="h100:1"), database_url) as runtime:
        reports = [
            NodeReport(
                name=name.format(node // RACK, node),
                ready=True,
                schedulable=True,
                gpus=tuple(
                    GpuReport(index, "h100" if node // RACK % 4 else "a100", f"GPU-{node}-{index}", None)
                    for index in range(CARDS)
                ),
            )
            for node in range(NODES)
        ]
        async with runtime.uow() as uow:
            await uow.inventory.update(reports, list[ForeignPod](), runtime.clock.now())
        yield runtime


@asynccontextmanager
async def looking(browser: Browser, cluster: Runtime, name: str, role: Role) -> AsyncIterator[Person]:
    """Somebody at a browser who looks at them."""
    secret, now = cluster.ids.new_secret(), cluster.clock.now()
    async with cluster.uow() as uow:
        user = await uow.identities.create_user(name, role, now - timedelta(days=1))
        token = cluster.ids.new_id("tok")
        await uow.identities.create_token(token, user.id, None, cluster.ids.digest(secret), None, now)
    stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    app = create_app(cluster, ApiSettings())
    serving = asyncio.create_task(serve(app, "127.0.0.1:0", stop=stop, ready=ready.set_result))
    try:
        url = (await asyncio.wait_for(ready, PATIENCE_S)).rstrip("/")
        async with open_person(browser, url) as person:
            await sign_in(person.page, secret)
            yield person
    finally:
        stop.set()
        await asyncio.wait_for(serving, PATIENCE_S)


async def execute(runtime: Runtime, statement: str, **values: object) -> None:
    async with runtime.uow() as uow:
        await sql(uow, statement, **values)


async def resize(page: Page, width: int, height: int) -> None:
    await page.set_viewport_size({"width": width, "height": height})


async def bottom(locator: Locator) -> float:
    """How far below the top of the page it ends, in pixels."""
    box = await locator.bounding_box()
    assert box is not None
    return box["y"] + box["height"]


async def test_a_thousand_nodes_are_read_chosen_from_and_kept_up(
    browser: Browser, cluster: Runtime, screenshot: Screenshot
) -> None:
    async with looking(browser, cluster, "alice", Role.USER) as alice:
        await execute(cluster, HOLD, last=LAST, long=LONG)
        page = alice.page
        await page.goto("/now")
        cells = page.locator("#cards .cells > a")
        await expect(cells).to_have_count(NODES)
        # What there is of each type is said in words above them.
        row = page.locator("#now-types").get_by_role("row").filter(has_text="h100")
        await expect(row.get_by_role("cell").nth(6)).to_have_text("5760")
        await screenshot(page, "now-8000")
        await _assert_one_screen(page)
        await _assert_short_on_a_phone(page)

        # A group is opened by its heading, a node by its number; whole names are there.
        await resize(page, 1440, 900)
        await page.get_by_role("link", name="h100 r01").click()
        names = page.locator("#cards .node h3 a")
        await expect(names).to_have_count(RACK)
        for width, height in ((390, 844), (1440, 900)):
            await resize(page, width, height)
            assert (await names.first.inner_text()).replace("\n", "") == NAME.format(1, RACK)
            cut = await names.evaluate_all("""all => all.flatMap((link) => [link, ...link.querySelectorAll(".domain")])
              .filter((part) => part.scrollWidth > part.clientWidth + 1 && getComputedStyle(part).display !== "inline"
                || part.getBoundingClientRect().right > part.closest(".node").getBoundingClientRect().right).length""")
            assert cut == 0
        await _assert_used_by_keyboard(page, cluster)
        await assert_accessible(page)


@pytest.mark.parametrize("cluster", ["node{1}"], indirect=True)
async def test_a_thousand_nodes_without_racks_are_one_screen(browser: Browser, cluster: Runtime) -> None:
    async with looking(browser, cluster, "alice", Role.USER) as alice:
        await alice.page.goto("/now")
        await expect(alice.page.locator("#cards .group-head")).to_have_count(2)
        await _assert_one_screen(alice.page)


async def _assert_one_screen(page: Page) -> None:
    await resize(page, 1440, 900)
    cells = page.locator("#cards .cells > a")
    assert await bottom(page.locator("#cards")) <= 900, "an overview is one screen"
    box = await cells.first.bounding_box()
    assert box is not None
    assert min(box["width"], box["height"]) >= 19, "too small to be told apart, or hit"
    await assert_apart(page, "#cards .group-head, #cards .cells > a")
    await assert_accessible(page)


async def _assert_short_on_a_phone(page: Page) -> None:
    await resize(page, 390, 844)
    assert await page.evaluate("document.documentElement.scrollHeight") < 4 * 844, "groups are collapsed"
    await expect(page.locator("#cards .group-head")).to_have_count(NODES // RACK)
    for heading in await page.locator("#cards .group-head").all():
        box = await heading.bounding_box()
        assert box is not None
        assert box["height"] >= 24, "too low for a finger"
    await assert_apart(page, "#cards .group-head, .types tbody tr, .filters > div")
    await assert_accessible(page)


async def _assert_used_by_keyboard(page: Page, cluster: Runtime) -> None:
    await page.goto("/now")
    last = page.locator(f"#cards .cells [href='?node={LAST}']")
    await expect(last).to_have_attribute("data-free", "6")
    await expect(last).to_have_accessible_name(f"{LAST}: 6 of 8 free, 2 yours")
    await page.locator("#cards .group-head a").last.focus()
    await page.keyboard.press("ArrowRight")
    await expect(page.locator("#cards .cells").last.locator("a").first).to_be_focused()
    await last.focus()

    # It keeps up, and what was focused stays so.
    await page.evaluate("document.body.dataset.same = 'yes'")
    heading = page.locator("#cards .group-head").last
    before = await heading.inner_text()
    assert re.search(r"\d+ free", before)
    await execute(cluster, END, node=LAST, index=0)
    await expect(last).to_have_attribute("data-free", "7")
    await expect(last).to_be_focused()
    await expect(heading).not_to_have_text(re.compile(re.escape(before.split("\n")[-1])))
    await expect(page.locator("body[data-same]")).to_have_count(1)
    await page.keyboard.press("Enter")
    await expect(page.locator("#cards .tile")).to_have_count(CARDS)
    await page.locator("#cards .tile").nth(2).click()
    await expect(page.locator("#card-details").get_by_role("heading")).to_have_text(f"{LAST}, GPU 2")
    await page.keyboard.press("Escape")

    # And is narrowed: the address says how.
    await page.get_by_role("link", name="Show all", exact=True).click()
    await page.get_by_label("Type", exact=True).select_option("a100")
    await expect(page.locator("#cards .cells > a")).to_have_count(280)
    await page.get_by_label("Free together").fill("6")
    await page.get_by_label("Sort by").select_option("free")
    await expect(page).to_have_url(re.compile("type=a100.*free=6.*sort=free"))
    free = await page.locator("#cards .cells > a").evaluate_all("all => all.map((cell) => +cell.dataset.free)")
    assert free
    assert min(free) >= 6
    await page.get_by_role("link", name="Show all", exact=True).click()
    await page.get_by_label("Only mine").check()
    await expect(page.locator("#cards .tile")).to_have_count(1)


async def test_tables_are_whole_on_a_desktop_and_on_a_phone(
    browser: Browser, cluster: Runtime, screenshot: Screenshot
) -> None:
    async with looking(browser, cluster, "root", Role.ADMIN) as root:
        await execute(cluster, HOLD, last=LAST, long=LONG)
        await execute(cluster, WAIT, long=LONG)
        page = root.page
        for path in ("/now", "/queue", "/jobs", "/usage", "/admin/users", "/admin/nodes", "/admin/audit"):
            await page.goto(path)
            for width, height in ((1440, 900), (390, 844)):
                await resize(page, width, height)
                outside = await page.locator(".table :is(th, td)").evaluate_all(
                    """(all, width) => all.filter((cell) => {
                      const {left, right} = cell.getBoundingClientRect();
                      const shown = cell.checkVisibility() && cell.closest("thead, .node") === null;
                      return shown && (left < 0 || right > width);
                    }).map((cell) => cell.textContent)""",
                    width,
                )
                assert not outside, f"{path} at {width} px: {outside[:3]}"
                wide = await page.evaluate("document.documentElement.scrollWidth")
                assert wide <= width, f"{path} is {wide} px wide at {width} px"
            await screenshot(page, f"table{path.replace('/', '-')}")
            if await page.locator(".table").count():
                assert await page.locator(".table td[data-label]").count(), path
        await _assert_chart_is_readable(page)


async def _assert_chart_is_readable(page: Page) -> None:
    """The words of the chart are as large on a phone as on a desktop, and stay apart."""
    await page.goto("/usage?span=month")
    for width in (1440, 390):
        await resize(page, width, 844)
        boxes = await page.locator(".plot .label").evaluate_all(
            """all => all.filter((label) => label.checkVisibility()).map((label) => {
              const {left, right, height} = label.getBoundingClientRect();
              return [left, right, height];
            })"""
        )
        assert len(boxes) >= 2
        assert all(height >= 12 for _, _, height in boxes)
        assert all(first[1] < second[0] for first, second in pairwise(boxes)), boxes

"""Now with 4,000 cards in a browser: it is read, chosen from and used by keyboard, and keeps up with what changes.

No system of this machine has so many: the API serves what was written into its database.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest_asyncio
from playwright.async_api import Browser, expect

from api_service.app import create_app
from api_service.server import serve
from reservation_core.domain.model import ForeignPod, GpuReport, NodeReport, Role
from reservation_core.runtime.settings.components import ApiSettings
from reservation_core.runtime.wiring import Runtime, open_runtime
from tests.sql import sql
from tests.waiting import PATIENCE_S
from tests.web.browser import Person, assert_accessible, open_person, sign_in
from tests.web.conftest import Screenshot

NODES, CARDS = 500, 8
# Every third card is held by a job of one of forty people, the first two of the last node by alice's.
HOLD = """
WITH people AS (
    INSERT INTO users (name, role, created_at) SELECT 'person' || n, 'user', now() FROM generate_series(0, 39) n
    RETURNING id, name
), slots AS (
    SELECT 'job-' || lpad(CAST(g.id AS text), 8, '0') AS id, g.id AS gpu_id, p.id AS user_id
    FROM gpus g JOIN people p ON p.name = 'person' || g.id % 40 JOIN nodes n ON n.id = g.node_id
    WHERE g.id % 3 = 0 AND n.name <> 'n499'
    UNION ALL
    SELECT 'job-' || lpad(CAST(g.id AS text), 8, '0'), g.id, u.id
    FROM gpus g JOIN nodes n ON n.id = g.node_id JOIN users u ON u.name = 'alice' WHERE n.name = 'n499' AND g.index < 2
), rows AS (
    INSERT INTO reservations (id, kind, user_id, status, reason_code, reason, gpus, gpu_type, nodes, duration, priority,
                              workload, created_at, changed_at, attempt, started_at, ends_at)
    SELECT id, 'job', user_id, 'running', 'running', 'x', 1, 'h100', 1, interval '2 hours', 0, '{}', now(), now(), 1,
           now(), now() + interval '2 hours'
    FROM slots RETURNING id
)
INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at)
SELECT id, 1, gpu_id, 0, tstzrange(now() - interval '1 minute', now() + interval '2 hours'), true, now() FROM slots
"""
# What holds a card of that name is over.
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
async def cluster(chromium: Path, database_url: str, tmp_path: Path) -> AsyncIterator[Runtime]:
    """So many cards, in a database."""
    async with open_runtime(ApiSettings(home=tmp_path / "home", local_gpus="h100:1"), database_url) as runtime:
        reports = [
            NodeReport(
                name=f"n{node:03}",
                ready=True,
                schedulable=True,
                gpus=tuple(
                    GpuReport(index, "h100" if node % 4 else "a100", f"GPU-{node}-{index}", None)
                    for index in range(CARDS)
                ),
            )
            for node in range(NODES)
        ]
        async with runtime.uow() as uow:
            await uow.inventory.update(reports, list[ForeignPod](), runtime.clock.now())
        yield runtime


@pytest_asyncio.fixture(loop_scope="session")
async def alice(browser: Browser, cluster: Runtime) -> AsyncIterator[Person]:
    """Somebody who looks at them."""
    secret, now = cluster.ids.new_secret(), cluster.clock.now()
    async with cluster.uow() as uow:
        user = await uow.identities.create_user("alice", Role.USER, now - timedelta(days=1))
        token = cluster.ids.new_id("tok")
        await uow.identities.create_token(token, user.id, None, cluster.ids.digest(secret), None, now)
    await execute(cluster, HOLD)
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


async def test_four_thousand_cards_are_read_chosen_from_and_kept_up(
    alice: Person, cluster: Runtime, screenshot: Screenshot
) -> None:
    page = alice.page
    await page.goto("/now")
    tiles = page.locator("#cards .tiles > a")
    await expect(tiles).to_have_count(NODES * CARDS)
    # What there is of each type is said in words above them.
    row = page.locator("#now-types").get_by_role("row").filter(has_text="h100")
    await expect(row.get_by_role("cell").nth(6)).to_have_text("3000")
    box = await tiles.first.bounding_box()
    assert box is not None
    assert min(box["width"], box["height"]) >= 20, "too small to be told apart, or hit"
    await screenshot(page, "now-4000")

    # The last tile is there as soon as a user goes there, and says what it is.
    last = page.locator("#cards [href*='card=n499/0']")
    await last.scroll_into_view_if_needed()
    await expect(last).to_be_in_viewport()
    await expect(last).to_have_class(re.compile("mine"))
    await expect(last).to_have_accessible_name(re.compile("GPU 0.*yours", re.IGNORECASE))
    await last.focus()
    await page.keyboard.press("ArrowRight")
    await page.keyboard.press("ArrowRight")
    await page.keyboard.press("Enter")
    await expect(page.locator("#card-details").get_by_role("heading")).to_have_text("n499, GPU 2")
    await page.keyboard.press("Escape")

    # It keeps up, and what was focused stays so.
    await page.evaluate("document.body.dataset.same = 'yes'")
    await execute(cluster, END, node="n499", index=0)
    await expect(last).to_have_class(re.compile("free"))
    await expect(page.locator("#cards [href*='card=n499/2']")).to_be_focused()
    await expect(page.locator("body[data-same]")).to_have_count(1)

    # And is narrowed, with words on each where there is room for them.
    await page.get_by_label("Type", exact=True).select_option("a100")
    await expect(tiles).to_have_count(NODES * CARDS // 4)
    await page.get_by_label("Node", exact=True).fill("n49")
    await expect(page.locator("#cards .tile")).to_have_count(2 * CARDS)
    await expect(page).to_have_url(re.compile("type=a100.*node=n49"))
    await assert_accessible(page)
    await page.get_by_role("link", name="Show all", exact=True).click()
    await page.get_by_label("Only mine").check()
    await expect(page.locator("#cards .tile")).to_have_count(1)

"""No page moves under its reader: layout shifts (CLS) of every page, as it loads and as it keeps up with changes."""

from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from tests.e2e.systems.system_process import FINAL
from tests.waiting import eventually_sync
from tests.web.conftest import People
from tests.web.every_page import NODES, addresses, make_things, tomorrow
from tests.web.web_system import WebSystem

SETTINGS = {"GPU_DEV_LOCAL_GPUS": NODES}
MOST = 0.05
"""Of shifts that nobody caused by typing or clicking; what web.dev calls good is 0.1."""
SIZES = ((1440, 900), (390, 844))
_OBSERVE = """
window.shifts = [];
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) {
    if (entry.hadRecentInput) continue;
    const moved = entry.sources.map(({ node }) => (node?.outerHTML ?? node?.textContent)?.slice(0, 120));
    window.shifts.push({ value: entry.value, moved });
  }
}).observe({ type: "layout-shift", buffered: true });
"""
# Entries come with the frame after the shift.
_SETTLED = """async () => {
  await document.fonts.ready;
  for (let frame = 0; frame < 4; frame++) await new Promise((resolve) => requestAnimationFrame(resolve));
}"""


async def assert_still(page: Page, words: str) -> None:
    """Whatever was shown so far stayed where it was."""
    await page.evaluate(_SETTLED)
    shifts = await page.evaluate("window.shifts")
    total = sum(shift["value"] for shift in shifts)
    assert total <= MOST, f"{words} shifts by {total:.3f}: {[shift for shift in shifts if shift['value'] > MOST / 10]}"


@pytest.fixture(scope="module")
def things(system: WebSystem) -> dict[str, str]:
    """Something for every page to show, and what stands for the parts of addresses."""
    return make_things(system)


@pytest_asyncio.fixture(loop_scope="session", params=SIZES, ids=("desktop", "phone"))
async def page(request: pytest.FixtureRequest, people: People) -> AsyncIterator[Page]:
    """An administrator's page that notes its shifts."""
    width, height = request.param
    root = await people("root", viewport={"width": width, "height": height})
    await root.page.goto("/")  # with styles and fonts at hand, as everybody's second page
    await root.context.add_init_script(_OBSERVE)
    root.expect_problem("^answer: (404|409) GET")  # what can't be done is a page, too
    yield root.page
    await root.page.goto("/jobs/job-nobody")


async def test_pages_stay_where_they_are_while_they_load(page: Page, things: dict[str, str]) -> None:
    wrong = []
    for address in addresses(things):
        await page.goto(address)
        if "/calendar" in address and await page.locator("#calendar").count():
            await expect(page.locator(".ec-row-head").first).to_be_visible()
        try:
            await assert_still(page, address)
        except AssertionError as error:
            wrong.append(str(error))
    assert not wrong, "\n".join(wrong)


async def test_pages_stay_where_they_are_while_they_keep_up(
    page: Page, things: dict[str, str], system: WebSystem
) -> None:
    """Of what others do, and one does elsewhere, pages show the change and nothing else."""
    wrong = []
    for address, act, shown in live_changes(system, things):
        await page.goto(address)
        await page.evaluate(_SETTLED)
        await page.evaluate("window.shifts.length = 0")
        words = act()
        await expect(page.locator(shown).filter(has_text=words).first).to_be_attached()
        try:
            await assert_still(page, f"{address}, while it keeps up,")
        except AssertionError as error:
            wrong.append(str(error))
    assert not wrong, "\n".join(wrong)


def live_changes(system: WebSystem, things: dict[str, str]) -> Iterator[tuple[str, Callable[[], str], str]]:
    """Pages, something that happens, and an element that then has words that are returned."""
    number = count(1)
    whole: list[str] = []

    def submitted(**more: Any) -> str:
        name = f"late-{next(number)}"
        system.submit("root", "sleep", "3000", name=name, duration=3600, **more)
        return name

    def booked() -> str:
        title = f"late {next(number)}"
        body = {"gpus": 1, "gpu_type": "h100", "start": tomorrow(78), "duration": 7200 * 6, "title": title}
        system.rest("root").post("/v1/bookings", json=body).raise_for_status()
        return title

    def moved() -> str:
        minute = next(number)
        start = datetime.fromisoformat(tomorrow(60)).replace(minute=minute)
        address = f"/v1/bookings/{things['booking_id']}"
        system.rest("root").patch(address, json={"start": start.isoformat()}).raise_for_status()
        return f"{start:%H:%M}"

    def cancelled() -> str:
        system.rest("root").post(f"/v1/jobs/{ends}/cancel").raise_for_status()
        return "cancelled"

    def taken() -> str:
        """All of a type, until tomorrow: numbers appear that were zero, and a time with its day in place of "now"."""
        whole.append(system.submit("root", "sleep", "3000", duration=86400, gpus=2, gpu_type="a100"))
        return f"{(datetime.now(UTC) + timedelta(days=1)):%a}"

    yield "/now", taken, "#now-types time"
    system.rest("root").post(f"/v1/jobs/{whole[0]}/cancel").raise_for_status()
    eventually_sync(lambda: system.job(whole[0])["status"] in FINAL)
    ends = system.submit("root", "sleep", "3000", duration=86400, gpu_type="a100")
    for address, shown in (("/queue", "#queue"), ("/jobs", "main table")):
        yield address, lambda: submitted(gpus=4, nodes=2, gpu_type="h100"), shown
    for view in ("view=week&by=type", "view=week&by=node", "view=week&by=card"):
        yield f"/calendar?{view}", booked, "#calendar .ec-event"
    yield f"/bookings/{things['booking_id']}", moved, "main"
    eventually_sync(lambda: system.job(ends)["status"] == "running")
    yield f"/jobs/{ends}", cancelled, "main"

"""Of 350 bookings a page draws some as one: their number is exact, and each of them can be reached from it."""

import re
from datetime import timedelta

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from tests.waiting import eventually
from tests.web.browser import assert_accessible
from tests.web.calendar.many_bookings import booking_at_once
from tests.web.calendar.test_calendar import day
from tests.web.conftest import People, Screenshot
from tests.web.web_system import WebSystem

SETTINGS = {"GPU_DEV_LOCAL_GPUS": "titan=h100:10;rhea=a100:2"}
FIRST = day(10)
DAYS, EACH = 5, 70
ALONE = "the only one there"
_CUT = """() => [...document.querySelectorAll("#calendar .ec-event-title .label")]
  .filter((label) => label.scrollWidth > label.clientWidth + 1).map((label) => label.innerText)"""


@pytest_asyncio.fixture(scope="module", loop_scope="session", autouse=True)
async def bookings(system: WebSystem, module_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Each day titan's ten GPUs have seven bookings of two hours, one after the other; one is on rhea."""
    async with booking_at_once(system, module_database_url, tmp_path_factory.mktemp("booking")) as book:
        for number in range(DAYS * EACH):
            start = FIRST + timedelta(days=number // EACH, hours=number % EACH // 10 * 2)
            body = {"gpus": 1, "node": "titan", "start": start.isoformat(), "duration": 7200, "title": f"run {number}"}
            assert await book("alice", body)
        start = FIRST + timedelta(days=2, hours=1)
        body = {"gpus": 1, "node": "rhea", "start": start.isoformat(), "duration": 54_000, "title": ALONE}
        assert await book("alice", body)


async def opened(page: Page, query: str) -> None:
    await page.goto(f"/calendar?from={FIRST:%Y-%m-%d}&{query}")
    await expect(page.locator("#calendar .ec-event.mine").first).to_be_visible()


async def numbers(page: Page) -> int:
    """The sum of what the merged entries say."""
    labels = await page.locator("#calendar .ec-event.merged .label").all_text_contents()
    return sum(int(re.match(r"\d+", label)[0]) for label in labels if re.match(r"\d+ bookings", label))  # type: ignore[index]


@pytest.mark.parametrize("size", [(1440, 900), (390, 844)], ids=("desktop", "phone"))
async def test_the_numbers_are_exact_and_lead_to_the_bookings(
    people: People, screenshot: Screenshot, size: tuple[int, int]
) -> None:
    alice = await people("alice", viewport={"width": size[0], "height": size[1]})
    page, card = alice.page, alice.page.locator("#entry-card")
    for query in (
        "view=week&by=type",
        "view=week&by=node",
        "view=week&by=card",
        "view=2weeks&by=node",
        "view=month&by=type",
    ):
        await opened(page, query)
        await eventually(lambda: _all_shown(page, DAYS * EACH + 1))
        assert await page.evaluate(_CUT) == [], query
        assert await page.locator("#calendar-crowded").is_hidden()
    await opened(page, "view=week&by=type")
    await expect(page.locator("#calendar .ec-event.mine:not(.merged)", has_text="the only")).to_have_count(1)
    await screenshot(page, "calendar-merged-by-number")
    await page.locator("#calendar .ec-event.merged .ec-event-title").first.focus()
    await expect(card.locator("li a").first).to_have_text(re.compile("Your booking run [0-9]"))
    await expect(card.locator("li.quiet")).to_contain_text("more")
    day_href = await card.get_by_role("link", name="Show this day").get_attribute("href")
    await assert_accessible(page)
    assert day_href is not None
    await page.goto(day_href)
    await expect(page.locator("#calendar .ec-event.mine").first).to_be_visible()
    await eventually(lambda: _all_shown(page, EACH))


async def test_within_a_day_they_lead_to_finer_rows(people: People) -> None:
    alice = await people("alice", viewport={"width": 1440, "height": 900})
    page, card = alice.page, alice.page.locator("#entry-card")
    for by, link, then in (("type", "Show its nodes", "by=node"), ("node", "Show its GPUs", "by=card")):
        await opened(page, f"view=day&by={by}")
        await page.evaluate("document.querySelector('#calendar').scrollIntoView()")
        await page.locator("#calendar .ec-event.merged .ec-event-title").first.focus()
        await card.get_by_role("link", name=link).click()
        await page.wait_for_url(f"**{then}**")
        await expect(page.locator("#calendar .ec-event.mine").first).to_be_visible()


async def test_keys_lead_into_the_card_of_merged_entries_and_back(people: People) -> None:
    alice = await people("alice", viewport={"width": 1440, "height": 900})
    page, card = alice.page, alice.page.locator("#entry-card")
    await opened(page, "view=week&by=node")
    entry = page.locator("#calendar .ec-event.merged .ec-event-title").first
    await entry.focus()
    await entry.press("Enter")
    await expect(card.locator("li a").first).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(card).to_be_hidden()
    await expect(entry).to_be_focused()


async def test_merged_entries_keep_the_focus_when_others_book(people: People, system: WebSystem) -> None:
    alice, rest = await people("alice", viewport={"width": 1440, "height": 900}), system.rest("alice")
    await opened(alice.page, "view=week&by=node")
    merged = alice.page.locator("#calendar .ec-event.merged .ec-event-title")
    await merged.first.focus()
    before = await numbers(alice.page)
    start = FIRST + timedelta(hours=14)
    body = {"gpus": 1, "node": "titan", "start": start.isoformat(), "duration": 7200, "title": "one more"}
    made = rest.post("/v1/bookings", json=body).raise_for_status().json()["id"]
    try:
        await eventually(lambda: _is(alice.page, before + 1))
        await expect(merged.first).to_be_focused()
    finally:
        rest.delete(f"/v1/bookings/{made}").raise_for_status()


async def _is(page: Page, number: int) -> bool:
    return await numbers(page) == number


async def _all_shown(page: Page, number: int) -> bool:
    """Whether so many are shown, merged or apart. What has no room is merged some frames after it was drawn first."""
    return await numbers(page) + await page.locator("#calendar .ec-event.mine:not(.merged)").count() == number

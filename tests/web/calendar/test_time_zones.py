"""The time zone of pages: the browser's, from the first page on, unless the user has chosen another."""

import re
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from playwright.async_api import Page, expect

from reservation_core.domain.time_words import time_words
from tests.web.conftest import People
from tests.web.web_system import WebSystem

BERLIN, KOLKATA = ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Kolkata")
RAW = re.compile(r"\d{4}-\d\d-\d\d(?:T| \d\d:)")
PAGES = (
    "/now", "/calendar", "/calendar?view=month", "/submit", "/queue", "/jobs", "/usage", "/bookings", "/account",
    "/admin", "/admin/users", "/admin/tokens", "/admin/projects", "/admin/policy", "/admin/maintenance", "/admin/nodes",
    "/admin/dead-letters", "/admin/pods", "/admin/audit",
)  # fmt: skip


async def loads(page: Page) -> list[str]:
    """The documents that the page loads from now on."""
    found = list[str]()
    page.on("request", lambda request: found.append(request.url) if request.resource_type == "document" else None)
    return found


async def zone_shown(page: Page) -> str:
    return await page.get_by_label("Times are in").input_value()


async def test_the_first_page_is_in_the_browsers_zone_and_loaded_once(people: People, system: WebSystem) -> None:
    job = system.submit("alice", "true", name="zoned")
    alice = await people("alice", timezone_id="Europe/Berlin")
    page = alice.page
    documents = await loads(page)
    await page.goto(f"/jobs/{job}")
    assert await zone_shown(page) == "Europe/Berlin"
    created = datetime.fromisoformat(system.job(job)["created_at"])
    started = page.locator(".life time").first
    await expect(started).to_have_attribute("title", time_words(created, BERLIN, seconds=True))
    await expect(started).to_have_text(f"{created.astimezone(BERLIN):%H:%M}")
    assert len(documents) == 1


async def test_somebody_who_has_travelled_sees_no_page_in_the_old_zone(people: People, system: WebSystem) -> None:
    alice = await people("alice", timezone_id="Asia/Kolkata")
    page = alice.page
    await alice.context.add_cookies([{"name": "gpu_dev_browser_zone", "value": "Europe%2FBerlin", "url": alice.url}])
    documents = await loads(page)
    await page.goto("/calendar")
    await expect(page.get_by_label("Times are in")).to_have_value("Asia/Calcutta")
    assert len(documents) == 2  # the first was not drawn
    await page.goto("/queue")
    assert len(documents) == 3


async def test_a_chosen_zone_wins_until_it_is_taken_back(people: People, system: WebSystem) -> None:
    alice = await people("alice", timezone_id="Europe/Berlin")
    page = alice.page
    await page.goto("/jobs")
    zone = page.get_by_label("Times are in")
    await zone.fill("Asia/Kolkata")
    await page.get_by_role("button", name="Change").click()
    await expect(page.get_by_text("Times are shown for Asia/Kolkata.")).to_be_visible()
    await page.goto("/calendar")
    assert await zone_shown(page) == "Asia/Kolkata"
    await page.get_by_label("Times are in").fill("")
    await page.get_by_role("button", name="Change").click()
    await expect(page.get_by_text("Times are shown for your browser's time zone.")).to_be_visible()
    assert await zone_shown(page) == "Europe/Berlin"


async def test_without_scripts_times_are_in_utc_which_the_page_says(people: People, system: WebSystem) -> None:
    alice = await people("alice", timezone_id="Europe/Berlin", java_script_enabled=False)
    await alice.page.goto("/jobs")
    assert await zone_shown(alice.page) == "UTC"
    await alice.page.get_by_label("Times are in").fill("Europe/Berlin")
    await alice.page.get_by_role("button", name="Change").click()
    assert await zone_shown(alice.page) == "Europe/Berlin"


async def test_a_zone_that_the_server_does_not_know_is_utc_and_loads_nothing_again(people: People) -> None:
    alice = await people("alice")
    page = alice.page
    await alice.context.add_init_script(
        "Intl.DateTimeFormat.prototype.resolvedOptions = () => ({timeZone: 'Moon/Tycho', locale: 'en'})"
    )
    await page.goto("/queue")
    documents = await loads(page)
    await page.goto("/jobs")
    assert await zone_shown(page) == "UTC"
    assert len(documents) == 1
    for value in ("%00", "..%2Fetc%2Fpasswd", "x" * 3000, "Europe/Berlin; <b>"):
        answer = await page.request.get("/jobs", headers={"Cookie": f"gpu_dev_browser_zone={value}"})
        assert answer.status == 200


async def test_what_is_typed_is_in_the_zone_that_is_shown(people: People, system: WebSystem) -> None:
    root = await people("root", timezone_id="Asia/Kolkata")
    page = root.page
    day = (datetime.now(UTC) + timedelta(days=3)).date()
    await page.goto("/admin/maintenance")
    [node] = system.rest("root").get("/v1/nodes").json()["items"]
    await page.get_by_label("Nodes").fill(node["name"])
    await page.get_by_label("From").fill(f"{day}T09:30")
    await page.get_by_label("Why").fill("fans")
    await page.get_by_role("button", name="Show what it affects").click()
    begins = datetime(day.year, day.month, day.day, 9, 30, tzinfo=KOLKATA)
    first = page.locator("main time").first
    await expect(first).to_have_attribute("datetime", f"{begins.astimezone(UTC):%Y-%m-%dT%H:%M}:00.000Z")
    await expect(first).to_contain_text("09:30")


async def test_hours_that_clocks_skip_or_repeat(people: People, system: WebSystem) -> None:
    """In spring 02:30 does not exist, and the nearest times are named. In autumn it comes twice: the first is meant."""
    alice = await people("alice", timezone_id="Europe/Berlin")
    page = alice.page
    await page.goto("/calendar")
    spring = _last_sunday(datetime.now(UTC).year + 1, 3)
    await page.get_by_label("Begins").fill(f"{spring}T02:30")
    verdict = page.locator("#booking-verdict")
    gap = f"{spring:%a} {spring.day} {spring:%b %Y}"
    await expect(verdict).to_contain_text(f"{gap} 02:30 does not exist in Europe/Berlin")
    await expect(verdict).to_contain_text(f"{gap} 01:59 CET or {gap} 03:00 CEST")
    autumn = _last_sunday(datetime.now(UTC).year + 1, 10)
    await page.get_by_label("Begins").fill(f"{autumn}T02:30")
    await expect(verdict.locator("time").first).to_have_attribute("datetime", f"{autumn}T00:30:00.000Z")
    await expect(verdict.locator("time").first).to_have_text(f"{autumn:%a} {autumn.day} {autumn:%b %Y} 02:30 CEST")


def _last_sunday(year: int, month: int) -> date:
    last = date(year, month, 31)
    return last - timedelta(days=(last.weekday() + 1) % 7)


async def test_no_page_shows_a_raw_time(people: People, system: WebSystem) -> None:
    rest = system.rest("root")
    soon = (datetime.now(UTC) + timedelta(days=1)).replace(minute=0, second=0, microsecond=0)
    booked = {"gpus": 1, "start": soon.isoformat(), "duration": 3600, "title": "raw"}
    booking = rest.post("/v1/bookings", json=booked).raise_for_status().json()["id"]
    job = system.submit("root", "sleep", "300", name="running")
    waiting = system.submit("root", "true", gpus=4, name="waiting")
    root = await people("root", timezone_id="Europe/Berlin")
    page = root.page
    more = (
        f"/jobs/{job}",
        f"/jobs/{waiting}",
        f"/jobs/{job}/cancel",
        f"/bookings/{booking}",
        f"/bookings/{booking}/cancel",
    )
    for path in (*PAGES, *more):
        await page.goto(path)
        text = await page.locator("body").inner_text()
        assert not RAW.search(text), f"{path}: {RAW.search(text)}"
    system.end_all_jobs()

"""By keys alone: bookings and jobs from the first key to the last, with the focus always somewhere that can be seen."""

from datetime import datetime, timedelta
from typing import Any

from playwright.async_api import Page, expect

from tests.waiting import eventually
from tests.web.browser import PHONE
from tests.web.calendar.test_calendar import booked, day, now_is
from tests.web.conftest import People
from tests.web.web_system import WebSystem

SETTINGS = {"GPU_DEV_LOCAL_GPUS": "titan=h100:2;rhea=a100:2"}
MOST_KEYS = 120

# Where the focus is: None for nowhere, else its words, its name, and whether it is seen.
_FOCUS = """() => {
  const shown = document.activeElement;
  if (shown === null || shown === document.body) return null;
  const { top, bottom, left, right } = shown.getBoundingClientRect();
  const ring = (of) => of !== null && getComputedStyle(of).outlineStyle !== "none";
  return {
    words: (shown.innerText || shown.value || shown.getAttribute("aria-label") || "").trim(),
    name: shown.getAttribute("name") || shown.id,
    kind: shown.localName,
    seen: bottom > 0 && top < innerHeight && right > 0 && left < innerWidth
      && (ring(shown) || ring(shown.closest(".ec-event"))),
  };
}"""


async def focus(page: Page) -> dict[str, Any]:
    """What has the focus; raises AssertionError where that is nothing, or can't be seen."""
    found: dict[str, Any] | None = await page.evaluate(_FOCUS)
    assert found is not None, f"{page.url}: nothing has the focus"
    assert found["seen"], f"{page.url}: the focus can't be seen: {found}"
    return found


async def tab_to(page: Page, words: str = "", name: str = "") -> None:
    """Press Tab until something with these words, or of this name, has the focus."""
    passed = []
    for _ in range(MOST_KEYS):
        await page.keyboard.press("Tab")
        found = await focus(page)
        if found["name"] == name if name else found["words"].startswith(words):
            return
        passed.append(found["words"] or found["name"])
    raise AssertionError(f"{words or name} was not reached: {passed}")


async def opened(page: Page, first: datetime, by: str = "card") -> None:
    """The calendar's week from a day on, drawn."""
    await page.goto(f"/calendar?by={by}&from={first:%Y-%m-%d}")
    await expect(page.locator(".ec-row-head").first).to_be_visible()


async def test_a_booking_is_made_moved_and_cancelled(people: People, system: WebSystem) -> None:
    page = (await people("alice")).page
    await page.goto("/calendar")
    await expect(page.locator(".ec-row-head").first).to_be_visible()
    await tab_to(page, "Book a slot")
    await page.keyboard.press("Enter")
    await expect(page.locator("#book")).to_be_focused()
    await tab_to(page, name="title")
    await page.keyboard.type("by keys")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/bookings/bkg-*")
    booking = {"id": page.url.rsplit("/", 1)[1]}
    made = now_is(system, "alice", booking)
    assert made["title"] == "by keys"

    await tab_to(page, name="start")
    for _ in range(4):  # day, month, year, hour
        await page.keyboard.press("Tab")
    await page.keyboard.press("ArrowUp")
    await tab_to(page, "Change it")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("status").filter(has_text="by keys is changed.")).to_be_visible()
    moved = datetime.fromisoformat(now_is(system, "alice", booking)["start"])
    assert moved - datetime.fromisoformat(made["start"]) == timedelta(minutes=1)

    await page.goto(f"/bookings/{booking['id']}")
    await tab_to(page, "Cancel the booking…")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("link", name="No, go back")).to_be_focused()
    await page.keyboard.press("Escape")
    assert (await focus(page))["words"] == "Cancel the booking…"
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("link", name="No, go back")).to_be_focused()
    await page.keyboard.press("Shift+Tab")
    assert (await focus(page))["words"] == "Cancel the booking"
    await page.keyboard.press("Enter")
    await eventually(lambda: now_is(system, "alice", booking)["status"] == "cancelled")


async def test_what_was_refused_has_the_focus_and_the_way_out_comes_next(people: People, system: WebSystem) -> None:
    alice = await people("alice")
    alice.expect_problem("^answer: (409|422) POST")
    page = alice.page
    taken = [booked(system, "bob", day(0) + timedelta(days=1), 24, gpus=2, gpu_type=of) for of in ("h100", "a100")]
    await page.goto(f"/calendar?from={day(1):%Y-%m-%d}&find=no#book")
    await page.locator("#start").fill(f"{day(1):%Y-%m-%dT09:00}")
    await page.locator("#title").focus()
    await page.keyboard.press("Enter")
    await expect(page.locator("main .problem")).to_be_focused()
    await focus(page)
    await page.keyboard.press("Tab")
    assert " to " in (await focus(page))["words"], "the first of the slots that are free"
    # As on all forms.
    await page.goto("/submit")
    await page.locator("#duration").fill("soon")
    await page.keyboard.press("Enter")
    await expect(page.locator("main .rules")).to_be_focused()
    for booking in taken:
        system.rest("bob").delete(f"/v1/bookings/{booking['id']}").raise_for_status()


async def test_the_timeline_keeps_the_focus_whatever_others_do(people: People, system: WebSystem) -> None:
    """Another's entry has no id that the page may know: it is the same one after entries before it went."""
    first = day(10)
    before = booked(system, "bob", first + timedelta(hours=1), 20, node="rhea", title="first")
    stays = booked(system, "bob", first + timedelta(days=2), 30, node="rhea", title="second")
    after = booked(system, "bob", first + timedelta(days=4), 40, node="rhea", title="third")
    page = (await people("alice")).page
    await opened(page, first)
    entries = page.locator("#calendar .ec-event-title")
    await expect(entries).to_have_count(3)
    await entries.nth(0).focus()
    await page.keyboard.press("ArrowRight")
    chosen = page.locator("#calendar .ec-event", has_text="1 d 6 h on rhea").locator(".ec-event-title")
    await expect(chosen).to_be_focused()
    system.rest("bob").delete(f"/v1/bookings/{before['id']}").raise_for_status()
    await expect(entries).to_have_count(2)
    await expect(chosen).to_be_focused()
    # It goes itself: its neighbour has the focus.
    system.rest("bob").delete(f"/v1/bookings/{stays['id']}").raise_for_status()
    await expect(entries).to_have_count(1)
    await expect(entries).to_be_focused()
    await focus(page)
    # And where none is left, the timeline.
    system.rest("bob").delete(f"/v1/bookings/{after['id']}").raise_for_status()
    await expect(entries).to_have_count(0)
    await expect(page.locator("#calendar")).to_be_focused()


async def test_an_entry_that_was_left_does_not_take_the_focus_when_it_comes_back(
    people: People, system: WebSystem
) -> None:
    first = day(20)
    start = first + timedelta(days=1)
    others = booked(system, "bob", start, 40, node="rhea")
    page = (await people("alice")).page
    await opened(page, first)
    entry = page.locator("#calendar .ec-event-title")
    await entry.focus()
    system.rest("bob").delete(f"/v1/bookings/{others['id']}").raise_for_status()
    await expect(entry).to_have_count(0)
    await page.locator("#title").focus()
    await page.mouse.click(800, 20)  # on nothing: that has the focus, as somebody wanted
    assert await page.evaluate("document.activeElement === document.body")
    again = booked(system, "bob", start, 40, node="rhea")
    await expect(entry).to_have_count(1)
    await eventually(lambda: page.evaluate("document.querySelector('#calendar .label').innerText !== ''"))
    assert await page.evaluate("document.activeElement === document.body")
    system.rest("bob").delete(f"/v1/bookings/{again['id']}").raise_for_status()


async def test_a_job_is_submitted_watched_and_cancelled(people: People, system: WebSystem) -> None:
    page = (await people("alice")).page
    await page.goto("/now")
    await page.keyboard.press("g")
    await page.keyboard.press("s")
    await page.wait_for_url("**/submit")
    await tab_to(page, name="command")
    await page.keyboard.type("sh -c 'seq 500; sleep 300'")
    await tab_to(page, "Submit")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/jobs/job-*")
    job = page.url.rsplit("/", 1)[1]
    await expect(page.locator(".log")).to_contain_text("500")
    await tab_to(page, name="log-find")
    await page.keyboard.type("250")
    await page.keyboard.press("Enter")
    await expect(page.locator("#log-found")).to_contain_text("1")
    await page.keyboard.press("Shift+Tab")
    await focus(page)
    await page.goto(page.url)
    await tab_to(page, "End it…")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("link", name="No, go back")).to_be_focused()
    await page.keyboard.press("Shift+Tab")
    assert (await focus(page))["words"] == "End it"
    await page.keyboard.press("Enter")
    await eventually(lambda: system.job(job)["status"] == "cancelled")
    await expect(page.get_by_role("status").filter(has_text="is being ended")).to_be_visible()


async def test_the_focus_stays_on_a_page_whose_parts_change(people: People, system: WebSystem) -> None:
    page = (await people("alice")).page
    held = [system.submit("alice", "sleep", "300", gpus=2, gpu_type=of, name=f"holds-{of}") for of in ("h100", "a100")]
    await eventually(lambda: all(system.job(job)["status"] == "running" for job in held))
    waits = [system.submit("alice", "true", gpus=2, gpu_type="h100", name=f"waits-{number}") for number in range(3)]
    await page.goto("/queue")
    await expect(page.locator("#queue tbody tr")).to_have_count(3)
    await page.get_by_role("link", name="waits-1").focus()
    system.rest("alice").post(f"/v1/jobs/{waits[1]}/cancel").raise_for_status()
    await expect(page.locator("#queue tbody tr")).to_have_count(2)
    await expect(page.get_by_role("link", name="waits-2")).to_be_focused()
    # A job ends while its button has the focus, and while somebody is asked about it.
    await page.goto(f"/jobs/{held[0]}")
    await page.get_by_role("link", name="End it…").focus()
    system.rest("alice").post(f"/v1/jobs/{held[0]}/cancel").raise_for_status()
    await expect(page.get_by_role("link", name="End it…")).to_have_count(0)
    await focus(page)
    await page.goto(f"/jobs/{held[1]}")
    await page.get_by_role("link", name="End it…").press("Enter")
    await expect(page.get_by_role("link", name="No, go back")).to_be_focused()
    system.rest("alice").post(f"/v1/jobs/{held[1]}/cancel").raise_for_status()
    await expect(page.get_by_role("link", name="End it…")).to_have_count(0)
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    assert await page.evaluate(_FOCUS) is not None
    system.end_all_jobs()


async def test_a_refusal_below_the_screen_of_a_phone_is_brought_into_sight(people: People) -> None:
    alice = await people("alice", viewport={"width": PHONE[0], "height": PHONE[1]})
    alice.expect_problem("answer: 409 POST .*/calendar/bookings")
    await alice.page.goto("/calendar")
    await alice.page.get_by_label("GPUs on each node").fill("60")
    await alice.page.get_by_role("button", name="Book", exact=True).click()
    refusal = alice.page.locator("main .problem")
    await expect(refusal).to_be_focused()
    await expect(refusal).to_be_in_viewport(ratio=0.5)

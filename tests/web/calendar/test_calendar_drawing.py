"""How the calendar is drawn in a real browser: counts, labels, what is merged, cards, and what dragging says."""

from datetime import datetime, timedelta

from playwright.async_api import Page, expect

from tests.waiting import eventually
from tests.web.browser import PHONE, assert_accessible
from tests.web.calendar.test_calendar import Finger, booked, box_of, day, now_is, place, said
from tests.web.conftest import People, Screenshot
from tests.web.web_system import WebSystem

SETTINGS = {"GPU_DEV_LOCAL_GPUS": "titan=h100:4;titus=h100:4;rhea=a100:2"}
RHEA, TITAN, TITUS = 0, 1, 2
"""The rows of the nodes."""

# What can be read of each entry: its text within its bar, or beside it, whole or cut.
_READABLE = """() => [...document.querySelectorAll("#calendar .ec-event-title .label")].map((label) => ({
  text: label.innerText.trim(), cut: label.scrollWidth > label.clientWidth }))"""
_TARGETS = """() => [...document.querySelectorAll("#calendar .ec-event-title")].map((title) => {
  const { width, height } = getComputedStyle(title, "::before");
  return Math.min(parseFloat(width), parseFloat(height));
})"""


async def opened(page: Page, first: datetime, by: str = "node", **more: str) -> None:
    """The calendar from a day on, drawn."""
    query = "".join(f"&{name}={value}" for name, value in more.items())
    await page.goto(f"/calendar?by={by}&from={first:%Y-%m-%d}{query}")
    await expect(page.locator(".ec-row-head").first).to_be_visible()


async def test_free_counts_are_read_to_the_minute(people: People, system: WebSystem, screenshot: Screenshot) -> None:
    first = day(3)
    booked(system, "bob", first + timedelta(hours=5, minutes=20), 1, gpus=4, node="titan")
    alice = await people("alice")
    for view, days in (("week", 7), ("month", 30)):
        await opened(alice.page, first, view=view)
        line = alice.page.locator(".heat-line").nth(TITAN)
        box = await box_of(line)
        # An hour's booking leaves all others free, however coarse the view is.
        await expect(line).to_contain_text("4")
        for minutes, words in (
            (4 * 60, f"4 of 4 free, {first:%a} {first.day} {first:%b} 00:00 – 05:20 (5 h 20 min)"),
            (5 * 60 + 50, f"0 of 4 free, {first:%a} {first.day} {first:%b} 05:20 – 06:20 (1 h)"),
        ):
            await alice.page.mouse.move(box["x"] + box["width"] * minutes / 1440 / days, box["y"] + 5)
            await expect(alice.page.locator(".drag-words")).to_have_text(words)
        widths = await alice.page.evaluate(
            "[...document.querySelectorAll('.ec-body .ec-day')].map((cell) => cell.getBoundingClientRect().width)"
        )
        assert max(widths) - min(widths) < 1.5, "days are as wide as each other"
    await screenshot(alice.page, "calendar-month")


async def test_a_short_entry_at_the_end_makes_a_week_no_wider_than_its_room(people: People, system: WebSystem) -> None:
    first = day(70)
    booked(system, "bob", first + timedelta(days=6, hours=23), 1, node="titan")
    page = (await people("alice")).page
    await opened(page, first)
    await expect(page.locator(".ec-event.others")).to_be_visible()
    main = page.locator("#calendar .ec-main")
    assert await main.evaluate("(main) => main.scrollWidth - main.clientWidth") == 0


async def test_small_entries_are_merged_and_cards_have_everything(
    people: People, system: WebSystem, screenshot: Screenshot
) -> None:
    first = day(12)
    made = [booked(system, "bob", first + timedelta(hours=number), 1, node="titan") for number in range(40)]
    long = booked(system, "alice", first + timedelta(days=3), 30, node="titus", title="a long title that fits")
    short = booked(system, "alice", first + timedelta(days=2), 1, node="rhea", title="short but named")
    alice = await people("alice")
    page, card = alice.page, alice.page.locator("#entry-card")
    await opened(page, first)
    merged = page.locator(".ec-event.merged")
    await expect(merged.first).to_contain_text("bookings")
    assert await page.locator(".ec-event:not(.heat-row)").count() < len(made) / 2
    shown = await page.evaluate(_READABLE)
    assert all(entry["text"] and not entry["cut"] for entry in shown), shown
    assert min(await page.evaluate(_TARGETS)) >= 24
    await merged.first.hover()
    await expect(card).to_contain_text("Booking of bob")
    await expect(card.get_by_role("link", name="Show this day")).to_be_visible()
    await assert_accessible(page)
    await screenshot(page, "calendar-merged")
    await page.keyboard.press("Escape")
    await expect(card).to_be_hidden()
    # By the keyboard, too: arrow keys go from entry to entry, also to those that lead nowhere.
    link = page.locator(f'a.ec-event-title[href="/bookings/{short["id"]}"]')
    await link.focus()
    await expect(card).to_contain_text("Your booking short but named")
    await expect(card).to_contain_text("1 h on rhea: GPU")
    await page.keyboard.press("ArrowDown")
    await expect(card).not_to_contain_text("short but named")
    for booking in (long, short):
        system.rest("alice").delete(f"/v1/bookings/{booking['id']}").raise_for_status()


async def test_merged_entries_leave_free_time_between_them_open(people: People, system: WebSystem) -> None:
    first = day(20)
    hours = (0, 3, 7)
    for number in hours:
        booked(system, "bob", first + timedelta(hours=number), 1, node="titan")
    page = (await people("alice", viewport={"width": 390, "height": 844})).page
    await opened(page, first)
    merged = page.locator(".ec-event.merged")
    await expect(merged).to_contain_text("3 bookings")
    gaps, whole = await page.evaluate(
        """() => {
          const entry = document.querySelector(".ec-event.merged");
          const width = (one) => one.getBoundingClientRect().width;
          return [[...entry.querySelectorAll(".gap")].map(width), width(entry)];
        }"""
    )
    lasts = hours[-1] + 1
    assert [round(gap / whole * lasts) for gap in gaps[:2]] == [2, 3], (gaps, whole)


async def test_a_tap_shows_the_card_and_a_second_one_the_booking(people: People, system: WebSystem) -> None:
    first = day(20)
    booking = booked(system, "alice", first + timedelta(hours=2), 12, node="titan", title="tapped")
    alice = await people("alice", has_touch=True, is_mobile=True, viewport={"width": PHONE[0], "height": PHONE[1]})
    page = alice.page
    await opened(page, first)
    entry = page.locator(".ec-event", has_text="tapped").get_by_role("link")
    await entry.tap()
    await expect(page.locator("#entry-card")).to_contain_text("Your booking tapped")
    assert min(await page.evaluate(_TARGETS)) >= 24
    # All entries are drawn anew meanwhile, and the card stays that of this one.
    other = booked(system, "alice", first + timedelta(hours=2), 12, node="titan", title="beside")
    await expect(page.locator(".ec-event", has_text="beside")).to_be_visible()
    await entry.tap()
    await page.wait_for_url(f"**/bookings/{booking['id']}")
    system.rest("alice").delete(f"/v1/bookings/{booking['id']}").raise_for_status()
    system.rest("alice").delete(f"/v1/bookings/{other['id']}").raise_for_status()


async def test_ones_own_job_is_named_and_has_one_colour_in_every_view(people: People, system: WebSystem) -> None:
    job = system.submit("alice", "sleep", "300", gpus=2, gpu_type="a100", name="whole", duration=24 * 3600)
    await eventually(lambda: system.job(job)["status"] == "running")
    alice = await people("alice")
    colours = set()
    for by in ("type", "node", "card"):
        await opened(alice.page, day(0), by)
        entry = alice.page.locator(".ec-event.mine", has_text="whole (runs)").first
        await expect(entry).to_be_visible()
        colours.add(await entry.evaluate("(entry) => getComputedStyle(entry).backgroundColor"))
    booked(system, "alice", day(2), 20, node="titan")
    await opened(alice.page, day(2))
    own = alice.page.locator(".ec-event.booking.mine").first
    colours.add(await own.evaluate("(entry) => getComputedStyle(entry).backgroundColor"))
    assert len(colours) == 1
    system.end_all_jobs()


async def test_dragging_says_the_time_and_rows_are_a_number(
    people: People, system: WebSystem, screenshot: Screenshot
) -> None:
    first = day(30)
    alice = await people("alice")
    page, words = alice.page, alice.page.locator(".drag-words")
    dialog = page.get_by_role("dialog", name="Book this slot")
    start = first + timedelta(days=1)
    said_time = f"{start:%a} {start.day} {start:%b} 08:00 – 12:00 (4 h)"

    async def dragged(by: str, begin: int, end: int, expected: str) -> None:
        await opened(page, first, by)
        await page.mouse.move(*await place(page, begin, 1, 8.1))
        await page.mouse.down()
        await page.mouse.move(*await place(page, begin, 1, 10), steps=4)
        await page.mouse.move(*await place(page, end, 1, 11.9), steps=4)
        await expect(words).to_have_text(expected)
        await screenshot(page, f"calendar-dragging-{by}")
        await page.mouse.up()
        await expect(dialog.get_by_text("Free: ")).to_be_visible()
        await expect(words).to_be_hidden()

    # rhea's two GPUs are the first rows, then titan's four: a booking has GPUs of one node on each.
    await dragged("card", 2, 4, f"{said_time}, 3 GPUs")
    await expect(dialog.get_by_text("Free: 3 × h100")).to_contain_text("titan")
    await expect(dialog.get_by_label("GPUs on each node")).to_have_value("3")
    await dragged("card", 3, 0, f"{said_time}, 2 GPUs")
    await dragged("node", TITAN, TITUS, f"{said_time}, 2 nodes")
    await expect(dialog.get_by_text("Free: 2 × h100")).to_contain_text("titus")
    await dragged("node", RHEA, TITAN, said_time)
    await expect(dialog.get_by_text("Free: 1 × a100")).to_be_visible()


async def test_a_refused_drag_offers_another_node_in_one_click(people: People, system: WebSystem) -> None:
    first = day(40)
    start = first + timedelta(days=1, hours=6)
    booking = booked(system, "alice", start, 4, title="roams", node="titan")
    other = booked(system, "bob", start + timedelta(days=1), 10, node="titan", gpus=4)
    alice = await people("alice")
    page = alice.page
    await opened(page, first)
    entry = page.locator(".ec-event", has_text="roams")
    box, cell = await box_of(entry), await box_of(page.locator(".ec-body .ec-day").first)
    at = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    await page.mouse.move(*at)
    await page.mouse.down()
    await page.mouse.move(at[0] + cell["width"], at[1], steps=6)
    moved = start + timedelta(days=1)
    await expect(page.locator(".drag-words")).to_have_text(f"{moved:%a} {moved.day} {moved:%b} 06:00 – 10:00 (4 h)")
    await page.mouse.up()
    dialog = page.get_by_role("dialog", name="Change your booking?")
    await dialog.get_by_role("button", name="Move it to titus").click()
    await expect(page.get_by_role("status").filter(has_text="roams is changed.")).to_be_visible()
    now = now_is(system, "alice", booking)
    assert (now["node"], now["start"]) == ("titus", said(moved))
    system.rest("alice").delete(f"/v1/bookings/{booking['id']}").raise_for_status()
    system.rest("bob").delete(f"/v1/bookings/{other['id']}").raise_for_status()


async def test_found_slots_are_highlighted_and_booked_by_one_click(
    people: People, system: WebSystem, screenshot: Screenshot
) -> None:
    alice = await people("alice")
    page = alice.page
    await opened(page, day(0))
    await page.get_by_label("Find a slot for").fill("3")
    await page.get_by_role("button", name="Find a slot").click()
    await expect(page.get_by_role("heading", name="3 GPUs for 2 h: the best slots")).to_be_visible()
    buttons = page.locator("#found-slots button")
    await expect(buttons).to_have_count(5)
    await expect(page.locator(".ec-bg-event.offer")).to_have_count(5)
    await expect(page.locator(".ec-bg-event.offer").first).to_contain_text("1")
    await assert_accessible(page)
    await screenshot(page, "calendar-found")
    wanted = await buttons.nth(1).get_attribute("value")
    await buttons.nth(1).click()
    await page.wait_for_url("**/bookings/bkg-*")
    made = now_is(system, "alice", {"id": page.url.rsplit("/", 1)[1]})
    assert f"{made['start']}/{made['end']}" == wanted


async def test_booking_a_found_slot_leaves_what_was_typed(people: People) -> None:
    page = (await people("alice")).page
    await opened(page, day(0))
    await page.get_by_label("Find a slot for").fill("1")
    await page.get_by_role("button", name="Find a slot").click()
    await expect(page.locator("#found-slots button").first).to_be_visible()
    address, title = page.url, page.locator("#book-form [name=title]")
    await title.fill("thesis")
    await page.reload()
    await expect(title).to_have_value("thesis")
    await expect(page.locator(".notice.draft")).to_have_count(1)
    await page.locator("#found-slots button").first.click()
    await page.wait_for_url("**/bookings/bkg-*")
    await page.goto(address)
    await expect(title).to_have_value("thesis")


async def test_a_finger_on_the_strip_reads_the_count(people: People, system: WebSystem) -> None:
    first = day(50)
    alice = await people("alice", has_touch=True, is_mobile=True, viewport={"width": 800, "height": 900})
    await opened(alice.page, first)
    box = await box_of(alice.page.locator(".heat-line").first)
    finger = Finger(await alice.context.new_cdp_session(alice.page))
    await finger.down((box["x"] + 60, box["y"] + 5))
    await finger.up()
    words = alice.page.locator(".drag-words")
    await expect(words).to_contain_text("2 of 2 free, ")
    assert await words.evaluate("(badge) => badge.scrollWidth <= badge.clientWidth")

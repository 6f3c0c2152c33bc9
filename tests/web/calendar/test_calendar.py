"""The calendar in a real browser: booking, moving and extending by hand, the verdict before, and what others see."""

from datetime import UTC, datetime, timedelta
from typing import Any

from playwright.async_api import CDPSession, FloatRect, Locator, Page, expect

from tests.waiting import eventually
from tests.web.browser import assert_accessible
from tests.web.conftest import People, Screenshot
from tests.web.web_system import WebSystem

SETTINGS = {"GPU_DEV_LOCAL_GPUS": "titan=h100:4;titus=h100:1;rhea=a100:2"}
RHEA, TITAN = 0, 1
"""The rows of the nodes."""


def day(days: int) -> datetime:
    """A midnight that is days away: what is done there is ahead, whatever the hour is now."""
    return datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=days)


async def open_week(page: Page, first: datetime) -> None:
    """A week of nodes, drawn."""
    await page.goto(f"/calendar?by=node&from={first:%Y-%m-%d}")
    await expect(page.locator(".heat-line")).to_have_count(3)


async def box_of(shown: Locator) -> FloatRect:
    """Where it is. An entry being drawn anew is nowhere for a moment."""
    return await eventually(shown.bounding_box)


async def place(page: Page, row: int, days: int, hour: float) -> tuple[float, float]:
    """Where an hour of the week is on a row."""
    box = await box_of(page.locator(".ec-body .ec-day").nth(7 * row + days))
    return box["x"] + box["width"] * hour / 24, box["y"] + box["height"] - 3


async def drag(page: Page, start: tuple[float, float], end: tuple[float, float]) -> None:
    """From one place to another, as a hand does."""
    await page.mouse.move(*start)
    await page.mouse.down()
    await page.mouse.move((start[0] + end[0]) / 2, (start[1] + end[1]) / 2, steps=4)
    await page.mouse.move(*end, steps=4)
    await page.mouse.up()


async def edge(event: Locator) -> tuple[float, float]:
    """The right edge of what is drawn."""
    box = await box_of(event)
    return box["x"] + box["width"] - 3, box["y"] + box["height"] / 2


def booked(system: WebSystem, who: str, start: datetime, hours: int, **more: Any) -> dict[str, Any]:
    """A booking that was made over REST."""
    body = {"gpus": 1, "start": start.isoformat(), "duration": 3600 * hours, **more}
    answer = system.rest(who).post("/v1/bookings", json=body)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def now_is(system: WebSystem, who: str, booking: dict[str, Any]) -> dict[str, Any]:
    """A booking as it is now."""
    found: dict[str, Any] = system.rest(who).get(f"/v1/bookings/{booking['id']}").raise_for_status().json()
    return found


def said(moment: datetime) -> str:
    """As answers have it."""
    return f"{moment:%Y-%m-%dT%H:%M:%S}.000Z"


async def test_a_slot_is_booked_by_dragging_and_cancelled_on_its_page(
    people: People, system: WebSystem, screenshot: Screenshot
) -> None:
    first = day(2)
    alice = await people("alice")
    page = alice.page
    await open_week(page, first)
    await drag(page, await place(page, TITAN, 1, 8.1), await place(page, TITAN, 1, 11.9))
    dialog = page.get_by_role("dialog", name="Book this slot")
    await expect(dialog.get_by_text("Free: 1 × h100")).to_be_visible()
    await dialog.get_by_label("Title").fill("thesis <b>runs</b>")
    await assert_accessible(page)
    await screenshot(page, "calendar-book")
    await dialog.get_by_role("button", name="Book", exact=True).click()
    await page.wait_for_url("**/bookings/bkg-*")
    booking = {"id": page.url.rsplit("/", 1)[1]}
    made = now_is(system, "alice", booking)
    start = first + timedelta(days=1, hours=8)
    assert (made["title"], made["start"], made["end"]) == (
        "thesis <b>runs</b>",
        said(start),
        said(start + timedelta(hours=4)),
    )
    assert made["node"] == "titan"
    await expect(page.get_by_role("heading", level=1)).to_have_text("thesis <b>runs</b>")
    await assert_accessible(page)
    await screenshot(page, "booking")
    await page.get_by_role("link", name="Cancel the booking…").click()
    dialog = page.get_by_role("dialog", name="Cancel thesis <b>runs</b>?")
    await expect(dialog).to_contain_text("You lose 1 h100 GPU from")
    await dialog.get_by_role("link", name="No, go back").click()
    await expect(dialog).to_have_count(0)
    await page.get_by_role("link", name="Cancel the booking…").click()
    await assert_accessible(page)
    await screenshot(page, "cancel-booking")
    await dialog.get_by_role("button", name="Cancel the booking").click()
    await expect(page.get_by_role("status").filter(has_text="The booking is cancelled.")).to_be_visible()
    assert now_is(system, "alice", booking)["status"] == "cancelled"


async def test_what_is_taken_is_told_and_one_click_books_the_nearest_slot(people: People, system: WebSystem) -> None:
    first = day(20)
    taken = first + timedelta(days=1, hours=8)
    booked(system, "bob", taken, 4, gpus=4, gpu_type="h100")
    alice = await people("alice")
    page = alice.page
    await open_week(page, first)
    await drag(page, await place(page, TITAN, 1, 8.1), await place(page, TITAN, 1, 9.9))
    dialog = page.get_by_role("dialog", name="Book this slot")
    await expect(dialog.get_by_text("This can’t be booked:")).to_be_visible()
    slots = dialog.locator("button[name=slot]")
    await expect(slots.first).to_be_visible()
    wanted = await slots.last.get_attribute("value")
    assert wanted is not None
    await slots.last.click()
    await page.wait_for_url("**/bookings/bkg-*")
    made = now_is(system, "alice", {"id": page.url.rsplit("/", 1)[1]})
    assert f"{made['start']}/{made['end']}" == wanted
    system.rest("alice").delete(f"/v1/bookings/{made['id']}").raise_for_status()


async def test_an_edge_makes_it_longer_and_others_see_it_without_a_reload(
    people: People, system: WebSystem, screenshot: Screenshot
) -> None:
    first = day(40)
    start = first + timedelta(days=1, hours=6)
    booking = booked(system, "alice", start, 6, title="sweep", node="titan")
    booked(system, "bob", start + timedelta(hours=30), 20, gpus=2, gpu_type="h100")
    alice, bob = await people("alice"), await people("bob")
    await open_week(alice.page, first)
    await open_week(bob.page, first)
    # Bob sees whose it is and that it is not his to touch.
    others = bob.page.locator(".ec-event.others")
    await expect(others).to_contain_text("Booking of alice, 1 GPU, ")
    await expect(others).to_contain_text(" 12:00, booked")
    await expect(others.locator("a, .ec-resizer")).to_have_count(0)

    event = alice.page.locator(".ec-event", has_text="sweep")
    await drag(alice.page, await edge(event), await place(alice.page, TITAN, 1, 17.9))
    dialog = alice.page.get_by_role("dialog", name="Change your booking?")
    await expect(dialog.get_by_text("It can be from")).to_be_visible()
    assert now_is(system, "alice", booking)["end"] == said(start + timedelta(hours=6))
    await assert_accessible(alice.page)
    await screenshot(alice.page, "calendar-change")
    await dialog.get_by_role("button", name="Change it").click()
    await expect(alice.page.get_by_role("status").filter(has_text="sweep is changed.")).to_be_visible()
    assert now_is(system, "alice", booking)["end"] == said(start + timedelta(hours=12))
    await expect(others).to_contain_text(" 18:00, booked")

    await open_week(alice.page, first)
    await assert_accessible(alice.page)
    await screenshot(alice.page, "calendar")
    await event.get_by_role("link").focus()
    await alice.page.keyboard.press("Enter")
    await alice.page.wait_for_url(f"**/bookings/{booking['id']}")
    await alice.page.get_by_role("link", name="Cancel the booking…").click()
    await alice.page.get_by_role("button", name="Cancel the booking").click()
    await expect(others).to_have_count(0)


async def test_a_move_that_is_refused_jumps_back_and_says_why(people: People, system: WebSystem) -> None:
    first = day(60)
    start = first + timedelta(days=1, hours=6)
    booking = booked(system, "alice", start, 4, title="eval", node="rhea", gpu_type="a100", gpus=2)
    booked(system, "bob", start + timedelta(days=1), 10, gpu_type="a100", gpus=2)
    alice = await people("alice")
    page = alice.page
    await open_week(page, first)
    event = page.locator(".ec-event", has_text="eval")
    before = await box_of(event)
    middle = before["x"] + before["width"] / 2, before["y"] + before["height"] / 2
    shift = (await place(page, RHEA, 2, 0))[0] - (await place(page, RHEA, 1, 0))[0]
    await drag(page, middle, (middle[0] + shift, middle[1]))
    dialog = page.get_by_role("dialog", name="Change your booking?")
    await expect(dialog.get_by_text("This is not possible:")).to_be_visible()
    await expect(dialog.locator("button[name=slot]").first).to_be_visible()
    await dialog.get_by_role("button", name="Leave it as it was").click()
    await expect(dialog).to_be_hidden()
    after = await box_of(event)
    assert abs(after["x"] - before["x"]) < 2
    assert now_is(system, "alice", booking)["start"] == said(start)


async def test_on_a_row_of_another_node_it_moves_there_and_elsewhere_it_is_said_why_not(
    people: People, system: WebSystem, screenshot: Screenshot
) -> None:
    first = day(100)
    start = first + timedelta(days=1, hours=6)
    booking = booked(system, "alice", start, 12, title="roams", node="titan")
    wide = booked(system, "alice", start + timedelta(days=2), 12, title="gang", gpu_type="h100", nodes=2)
    alice = await people("alice")
    page = alice.page
    dialog, event = page.locator("#change-dialog"), page.locator(".ec-event", has_text="roams").first

    async def opened(by: str, rows: int) -> None:
        await page.goto(f"/calendar?by={by}&from={first:%Y-%m-%d}")
        await expect(page.locator(".ec-row-head")).to_have_count(rows)
        await expect(event).to_be_visible()

    async def dragged_by(rows: int, shown: Locator = event, days: float = 0) -> None:
        box, cell = await box_of(shown), await box_of(page.locator(".ec-body .ec-day").first)
        at = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        await drag(page, at, (at[0] + days * cell["width"], at[1] + rows * cell["height"]))

    async def row_of(shown: Locator) -> int:
        box, cell = await box_of(shown), await box_of(page.locator(".ec-body .ec-day").first)
        return int((box["y"] + box["height"] / 2 - cell["y"]) // cell["height"])

    async def stays(shown: Locator, before: FloatRect, words: str) -> None:
        await expect(dialog.get_by_role("heading", name="It can’t be put there")).to_be_visible()
        await expect(dialog).to_contain_text(words)
        await expect(dialog.get_by_role("button", name="Change it")).to_have_count(0)
        after = await box_of(shown)
        assert (abs(after["x"] - before["x"]) < 2, abs(after["y"] - before["y"]) < 2) == (True, True)
        await dialog.get_by_role("button", name="Leave it as it was").click()
        await expect(dialog).to_be_hidden()

    await opened("type", 2)
    before = await box_of(event)
    await dragged_by(-1)
    await screenshot(page, "calendar-why-not")
    await stays(event, before, "A booking keeps the type of GPU that it was made for, here h100.")

    # rhea's two GPUs, titan's four, and that of titus.
    await opened("card", 7)
    before, row = await box_of(event), await row_of(event)
    beside = 1 if row == 2 else -1
    await dragged_by(beside)
    await stays(event, before, "The server chooses which of a node’s GPUs a booking gets.")
    await dragged_by(1 - row)
    await stays(event, before, "A booking keeps the type of GPU")
    gang = page.locator(".ec-event", has_text="gang").last
    before = await box_of(gang)
    await dragged_by(-1, gang)
    await stays(gang, before, "It has GPUs on 2 nodes at once")
    # Aside and a little off the row is aside.
    await dragged_by(beside, days=1)
    await expect(dialog.get_by_text("It can be from")).to_be_visible()
    await dialog.get_by_role("button", name="Leave it as it was").click()
    await expect(dialog).to_be_hidden()
    await dragged_by(6 - row)
    await expect(dialog.get_by_text("It can be from")).to_contain_text("titus: GPU 0")
    await dialog.get_by_role("button", name="Change it").click()
    await expect(page.get_by_role("status").filter(has_text="roams is changed.")).to_be_visible()
    now = now_is(system, "alice", booking)
    assert (now["node"], now["start"]) == ("titus", said(start))
    assert now_is(system, "alice", wide)["start"] == said(start + timedelta(days=2))
    for booking_shown in (booking, wide):
        system.rest("alice").delete(f"/v1/bookings/{booking_shown['id']}").raise_for_status()


async def test_everything_is_there_without_scripts(people: People, system: WebSystem) -> None:
    first = day(80)
    made = booked(system, "alice", first + timedelta(days=1, hours=6), 4, title="plain", node="titan")
    alice = await people("alice", java_script_enabled=False)
    page = alice.page
    await page.goto(f"/calendar?by=type&from={first:%Y-%m-%d}")
    row = page.get_by_role("row").filter(has_text="h100")
    await expect(row.get_by_role("cell").nth(1)).to_contain_text("4")
    await expect(row.get_by_role("link", name="plain")).to_have_attribute("href", f"/bookings/{made['id']}")
    await page.get_by_label("Begins").fill(f"{first:%Y-%m-%d}T10:00")
    await page.get_by_role("button", name="Check").click()
    await expect(page.get_by_text("Free: 1 ×")).to_be_visible()
    await page.get_by_role("button", name="Book", exact=True).click()
    await expect(page.get_by_text("Booked: these GPUs are yours for that time.")).to_be_visible()


class Finger:
    """One finger on a screen, as the browser has it from the device."""

    def __init__(self, session: CDPSession) -> None:
        self._session = session
        self._at = (0.0, 0.0)

    async def down(self, at: tuple[float, float]) -> None:
        """Put it on the screen."""
        self._at = at
        await self._send("touchStart")

    async def move(self, to: tuple[float, float], steps: int = 6) -> None:
        """Without lifting it."""
        start = self._at
        for step in range(1, steps + 1):
            self._at = tuple(a + (b - a) * step / steps for a, b in zip(start, to, strict=True))  # type: ignore[assignment]
            await self._send("touchMove")

    async def up(self) -> None:
        """Lift it."""
        await self._session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})

    async def _send(self, kind: str) -> None:
        point = {"x": self._at[0], "y": self._at[1]}
        await self._session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [point]})


async def test_a_finger_that_rests_first_books_and_moves_and_one_that_does_not_scrolls(
    people: People, system: WebSystem
) -> None:
    first = day(120)
    start = first + timedelta(days=1, hours=6)
    booking = booked(system, "alice", start, 12, title="touched", node="rhea")
    alice = await people("alice", has_touch=True, is_mobile=True, viewport={"width": 800, "height": 900})
    page = alice.page
    finger = Finger(await alice.context.new_cdp_session(page))
    preview = page.locator(".ec-preview")
    await open_week(page, first)
    event = page.locator(".ec-event", has_text="touched")

    await expect(page.locator("#calendar-hint")).to_contain_text("Hold, then drag on free space", use_inner_text=True)
    # A swipe over the timeline scrolls the page, wherever it began.
    box = await box_of(event)
    for begin in ((box["x"] + 20, box["y"] + 5), await place(page, TITAN, 4, 12)):
        await open_week(page, first)  # a page that a swipe has set in motion stops when it is left
        await finger.down(begin)
        await finger.move((begin[0], begin[1] - 150))
        await finger.up()
        await expect(preview).to_have_count(0)
        await eventually(lambda: page.evaluate("scrollY > 50"))
    await expect(page.locator("dialog[open]")).to_have_count(0)

    # Held for a while, free space is what is booked.
    await open_week(page, first)
    await finger.down(await place(page, TITAN, 3, 8.1))
    await expect(preview).to_be_visible()
    await finger.move(await place(page, TITAN, 3, 15.9))
    await finger.up()
    dialog = page.get_by_role("dialog", name="Book this slot")
    await expect(dialog.get_by_text("Free: 1 × h100")).to_be_visible()
    await expect(dialog.get_by_label("Begins")).to_have_value(f"{first + timedelta(days=3, hours=8):%Y-%m-%dT%H:%M}")
    await expect(dialog.get_by_label("Ends")).to_have_value(f"{first + timedelta(days=3, hours=16):%Y-%m-%dT%H:%M}")
    await dialog.get_by_role("button", name="Close").click()
    await expect(dialog).to_be_hidden()

    # And what is one's own is moved.
    box = await box_of(event)
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    shift = (await place(page, RHEA, 2, 0))[0] - (await place(page, RHEA, 1, 0))[0]
    await finger.down(middle)
    await expect(preview).to_be_visible()
    await finger.move((middle[0] + shift, middle[1]))
    await finger.up()
    dialog = page.get_by_role("dialog", name="Change your booking?")
    await dialog.get_by_role("button", name="Change it").click()
    await expect(page.get_by_role("status").filter(has_text="touched is changed.")).to_be_visible()
    assert now_is(system, "alice", booking)["start"] == said(start + timedelta(days=1))
    # A tap is none of these: it shows the card, and a second one opens the booking.
    await open_week(page, first)
    await event.get_by_role("link").tap()
    await expect(page.locator("#entry-card")).to_contain_text("Your booking touched")
    await event.get_by_role("link").tap()
    await page.wait_for_url(f"**/bookings/{booking['id']}")
    system.rest("alice").delete(f"/v1/bookings/{booking['id']}").raise_for_status()

"""Of 220 bookings a week each entry's label can be read: within its bar, beside it, or as one with its neighbours."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from tests.waiting import eventually
from tests.web.calendar.many_bookings import booking_at_once
from tests.web.calendar.test_calendar import day
from tests.web.conftest import People, Screenshot
from tests.web.layout import assert_apart
from tests.web.web_system import WebSystem

HOST = "rhea-rack01-of-the-second-hall-node07"
RHEA = f"{HOST}.hpc.example.org"
SETTINGS = {"GPU_DEV_LOCAL_GPUS": f"titan=h100:4;titus=h100:4;{RHEA}=a100:2"}
CARDS = {"titan": 4, "titus": 4, RHEA: 2}
BOOKINGS = 220
FIRST = day(60)
TITLES = (
    "train llama",
    "eval",
    "sweep 12",
    "thesis",
    "ablation of the loss",
    "a name that says much more",
    "nightly",
    "x",
)
HOURS = (1, 1, 2, 2, 3, 4, 6, 8, 12, 24)
SIZES = ((1440, 900), (390, 844))

# Faults of each label: clipped, shortened within a word, above another entry of its line, or cut by a notch of its bar.
_FAULTS = """() => {
  const boxOf = (shown) => shown.getBoundingClientRect();
  const bars = [...document.querySelectorAll("#calendar .ec-event:not(.heat-row)")].map(boxOf);
  const labels = [...document.querySelectorAll("#calendar .ec-event-title .label")];
  const faults = labels.flatMap((label) => {
    const bar = boxOf(label.closest(".ec-event"));
    const { left, right } = boxOf(label);
    const text = label.innerText.trim();
    const whole = label.dataset.whole ?? text;
    const outside = /beside|before/.test(label.parentElement.className);
    const covers = outside && bars.some((other) => Math.abs(other.top - bar.top) < 1 && other.left !== bar.left
      && left < other.right - 1 && right > other.left + 1);
    const shortened = text !== whole && !`${whole} `.startsWith(text.replace("…", " "));
    const cut = label.scrollWidth > label.clientWidth + 1;
    const { bottom } = boxOf(label); // of a line, which ends some pixels below its letters
    const notched = [...label.parentElement.querySelectorAll(".gap")].map(boxOf)
      .some((gap) => gap.left < right && gap.right > left && gap.top < bottom - 3);
    return [[cut, "cut"], [notched, "notched"], [text === "", "empty"], [covers, "covers another"],
      [shortened, "ends within a word"]]
      .filter(([wrong]) => wrong).map(([, words]) => `${words}: ${whole} as "${text}"`);
  });
  return [labels.length, faults];
}"""

# The labels that stand on a slot that was found, and those that stand beside their bars for want of room.
_ON_SLOTS = """() => {
  const slots = [...document.querySelectorAll("#calendar .offer")].map((slot) => slot.getBoundingClientRect());
  const labels = [...document.querySelectorAll("#calendar .ec-event-title .label")];
  const on = (a, b) => a.left < b.right - 1 && a.right > b.left + 1 && a.top < b.bottom - 1 && a.bottom > b.top + 1;
  const covering = labels.filter((label) => slots.some((slot) => on(label.getBoundingClientRect(), slot)));
  return [slots.length, covering.map((label) => label.innerText),
    labels.filter((label) => label.closest(".before, .beside")).map((label) => label.innerText)];
}"""


_STAY = """async () => {
  const labels = [...document.querySelectorAll("#calendar .label")];
  labels.forEach((label) => { label.title = "kept"; });
  for (let frame = 0; frame < 20; frame++) await new Promise((resolve) => requestAnimationFrame(resolve));
  return labels.length > 10 && labels.every((label) => label.isConnected);
}"""

# The names of rows that are cut, or that stand beyond their row.
_CUT_NAMES = """() => [...document.querySelectorAll("#calendar .row-title")].filter((name) => {
  const [shown, head] = [name, name.closest(".ec-row-head")].map((part) => part.getBoundingClientRect());
  return name.scrollWidth > name.clientWidth + 1 || shown.top < head.top - 1 || shown.bottom > head.bottom + 1;
}).map((name) => name.innerText)"""


@pytest_asyncio.fixture(scope="module", loop_scope="session", autouse=True)
async def bookings(system: WebSystem, module_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> int:
    """As many of three people as fit into the week."""
    chance = random.Random(4)
    taken = {node: [0] * 2 * 168 for node in CARDS}  # by half hours of the week
    made = 0
    async with booking_at_once(system, module_database_url, tmp_path_factory.mktemp("booking")) as book:
        for _ in range(8 * BOOKINGS):
            if made == BOOKINGS:
                break
            hours, gpus = chance.choice(HOURS), chance.choice((1, 1, 1, 2))
            node, start = chance.choice(tuple(CARDS)), chance.randrange(2 * (168 - hours))
            title, who = chance.choice(TITLES), chance.choice(("alice", "bob", "root"))
            half_hours = range(start, start + 2 * hours)
            if max(taken[node][at] for at in half_hours) + gpus > CARDS[node]:
                continue  # it would be refused, at the price of a search for other slots
            begin = (FIRST + timedelta(minutes=30 * start)).isoformat()
            body = {"gpus": gpus, "node": node, "start": begin, "duration": 3600 * hours, "title": title}
            if await book(who, body):
                made += 1
                for at in half_hours:
                    taken[node][at] += gpus
    return made


async def opened(page: Page, query: str) -> None:
    await page.goto(f"/calendar?from={FIRST:%Y-%m-%d}&{query}")
    await expect(page.locator("#calendar .ec-event.mine").first).to_be_visible()


async def assert_readable(page: Page) -> None:
    """What has no room for its label is merged and drawn anew, some frames after it was drawn first or changed."""
    faults: list[str] = []

    async def readable() -> bool:
        nonlocal faults
        labels, faults = await page.evaluate(_FAULTS)
        return labels > 10 and not faults

    try:
        await eventually(readable)
    except AssertionError:
        raise AssertionError(page.url, faults) from None


@pytest.mark.parametrize("size", SIZES, ids=("desktop", "phone"))
async def test_no_label_is_cut(people: People, screenshot: Screenshot, bookings: int, size: tuple[int, int]) -> None:
    assert bookings == BOOKINGS
    alice = await people("alice", viewport={"width": size[0], "height": size[1]})
    page = alice.page
    for query in (
        "view=week&by=type", "view=week&by=node", "view=week&by=card", "view=day&by=node", "view=2weeks&by=node",
        "view=month&by=node",
    ):  # fmt: skip
        await opened(page, query)
        await assert_readable(page)
        await assert_apart(page, "#calendar .ec-event:not(.heat-row), #calendar .heat-line")
    await opened(page, "view=week&by=node")
    await screenshot(page, "calendar-220")


@pytest.mark.parametrize("size", SIZES, ids=("desktop", "phone"))
async def test_no_name_of_a_node_is_cut(people: People, size: tuple[int, int]) -> None:
    # Its rows are more than a screen.
    page = (await people("alice", viewport={"width": size[0], "height": size[1] // 2})).page
    for by, name in (("node", HOST), ("card", f"{HOST} / 1")):
        await opened(page, f"view=week&by={by}")
        await expect(page.locator("#calendar .row-title", has_text=name)).to_be_visible()
        assert await page.evaluate(_CUT_NAMES) == []


@pytest.mark.parametrize("size", SIZES, ids=("desktop", "phone"))
async def test_a_label_stands_on_no_slot_that_was_found(
    people: People, system: WebSystem, size: tuple[int, int]
) -> None:
    """The best slot begins where the booking ends: beside it is no room for its label, but before it there is."""
    start = (datetime.now(UTC) + timedelta(hours=2)).replace(minute=0, second=0, microsecond=0)
    body = {"gpus": 2, "node": RHEA, "start": start.isoformat(), "duration": 1800, "title": "ablation"}
    booking = system.rest("alice").post("/v1/bookings", json=body).raise_for_status().json()
    page = (await people("alice", viewport={"width": size[0], "height": size[1]})).page
    found: list[Any] = []

    async def apart() -> bool:
        nonlocal found
        found = await page.evaluate(_ON_SLOTS)
        slots, covering, outside = found
        return slots > 0 and not covering and "ablation" in outside

    try:
        week = f"from={day(-1):%Y-%m-%d}&view=week&by=node"
        await page.goto(f"/calendar?{week}&type=a100&find=yes&gpus=2&length=4h")
        await eventually(apart)
    except AssertionError:
        raise AssertionError(page.url, found) from None
    finally:
        system.rest("alice").delete(f"/v1/bookings/{booking['id']}").raise_for_status()


async def test_slots_that_were_found_merge_no_bookings(people: People, system: WebSystem) -> None:
    """Of two bookings close to each other the second has its label behind it, where a slot is found."""
    start = day(3)
    body = {"gpus": 2, "node": RHEA, "duration": 4 * 3600}
    made = [
        system.rest("alice").post(
            "/v1/bookings", json=body | {"start": (start + timedelta(hours=hours)).isoformat(), "title": title}
        )
        for hours, title in ((10, "one"), (15, "two"), (60, "far"))
    ]
    page = (await people("alice", viewport={"width": 1440, "height": 900})).page
    shown = page.locator("#calendar .ec-event.mine .label")
    try:
        week = f"/calendar?from={start:%Y-%m-%d}&view=week&by=node&type=a100"
        await page.goto(week)
        await expect(shown).to_have_text(["one", "two", "far"])
        await page.goto(f"{week}&find=yes&gpus=2&length=4h")
        await expect(page.locator("#calendar .offer").first).to_be_visible()
        await expect(shown).to_have_text(["one", "two", "far"])
        _, covering, _ = await page.evaluate(_ON_SLOTS)
        assert covering == []
    finally:
        for answer in made:
            system.rest("alice").delete(f"/v1/bookings/{answer.raise_for_status().json()['id']}").raise_for_status()


async def test_a_window_that_only_gets_higher_is_not_drawn_anew(people: People) -> None:
    page = (await people("alice", viewport={"width": 390, "height": 700})).page
    await opened(page, "view=week&by=node")
    await assert_readable(page)

    async def drawn() -> bool:
        """Labels are drawn, and stay: entries are merged within some frames."""
        return await page.evaluate(_STAY)

    await eventually(drawn)
    await page.set_viewport_size({"width": 390, "height": 844})
    await assert_readable(page)
    kept = page.locator("#calendar .label[title=kept]")
    assert await kept.count() > 10
    await page.set_viewport_size({"width": 1440, "height": 844})
    await expect(kept).to_have_count(0)


async def test_on_a_phone_the_first_day_is_whole(people: People, system: WebSystem) -> None:
    page = (await people("alice", viewport={"width": 390, "height": 844})).page
    for view in ("week", "2weeks", "month"):
        await page.goto(f"/calendar?view={view}&by=node")
        first = page.locator("#calendar .ec-col-head").first
        await expect(first).to_be_visible()
        rows, box = await page.locator("#calendar .ec-row-head").first.bounding_box(), await first.bounding_box()
        assert rows is not None
        assert box is not None
        assert box["x"] >= rows["x"] + rows["width"] - 1, view


@pytest.mark.parametrize("size", SIZES, ids=("desktop", "phone"))
async def test_the_table_has_room_for_days_beside_long_names(people: People, size: tuple[int, int]) -> None:
    page = (await people("alice", viewport={"width": size[0], "height": size[1]})).page
    for by in ("node", "card"):
        await page.goto(f"/calendar?as=table&view=week&by={by}")
        rows = page.locator(".calendar-table tbody tr")
        for row in await rows.all():
            name, first = await row.locator("th").bounding_box(), await row.locator("td").first.bounding_box()
            assert name is not None
            assert first is not None
            assert name["width"] < size[0] / 2.5
            assert name["x"] + name["width"] <= first["x"] + 1
            assert await row.locator("th").evaluate("(head) => head.scrollWidth <= head.clientWidth")


async def test_all_of_them_are_in_the_cards(people: People, bookings: int) -> None:
    """Each booking is an entry, or one of a merged entry; a card has its title, GPUs and times."""
    alice = await people("alice", viewport={"width": 1440, "height": 900})
    page, card = alice.page, alice.page.locator("#entry-card")
    await opened(page, "view=week&by=card&type=a100")
    merged = page.locator("#calendar .ec-event.merged.mine").first
    await merged.hover()
    await expect(card.locator("li").first).to_contain_text("Your booking")
    await expect(card.locator("li small").first).to_contain_text(" to ")
    short = page.locator("#calendar .ec-event.mine:not(.merged) .ec-event-title").first
    await short.focus()
    await expect(card).to_contain_text("Your booking")
    await expect(card).to_contain_text(f"on {RHEA}: GPU")

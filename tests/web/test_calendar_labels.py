"""Of 220 bookings a week each entry's label can be read: within its bar, beside it, or as one with its neighbours."""

import random
from datetime import timedelta

import pytest
from playwright.async_api import Page, expect

from tests.waiting import eventually
from tests.web.conftest import People, Screenshot
from tests.web.layout import assert_apart
from tests.web.test_calendar import day
from tests.web.web_system import WebSystem

SETTINGS = {"GPU_DEV_LOCAL_GPUS": "titan=h100:4;titus=h100:4;rhea=a100:2"}
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

# Faults of each label: clipped, shortened within a word, or above another entry of its line.
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
    return [[cut, "cut"], [text === "", "empty"], [covers, "covers another"], [shortened, "ends within a word"]]
      .filter(([wrong]) => wrong).map(([, words]) => `${words}: ${whole} as "${text}"`);
  });
  return [labels.length, faults];
}"""


@pytest.fixture(scope="module", autouse=True)
def bookings(system: WebSystem) -> int:
    """As many of three people as fit into the week."""
    chance = random.Random(4)
    made = 0
    for _ in range(8 * BOOKINGS):
        if made == BOOKINGS:
            break
        hours = chance.choice(HOURS)
        body = {
            "gpus": chance.choice((1, 1, 1, 2)),
            "node": chance.choice(("titan", "titus", "rhea")),
            "start": (FIRST + timedelta(minutes=30 * chance.randrange(2 * (168 - hours)))).isoformat(),
            "duration": 3600 * hours,
            "title": chance.choice(TITLES),
        }
        made += system.rest(chance.choice(("alice", "bob", "root"))).post("/v1/bookings", json=body).status_code == 201
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
    import os

    cdp = await page.context.new_cdp_session(page)
    await cdp.send("Emulation.setCPUThrottlingRate", {"rate": float(os.environ.get("THROTTLE", "1"))})
    for query in (
        *(["view=week&by=node"] * 12),
    ):  # fmt: skip
        await opened(page, query)
        await assert_readable(page)
        await assert_apart(page, "#calendar .ec-event:not(.heat-row), #calendar .heat-line")
    await opened(page, "view=week&by=node")
    await screenshot(page, "calendar-220")


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
    await expect(card).to_contain_text("on rhea: GPU")

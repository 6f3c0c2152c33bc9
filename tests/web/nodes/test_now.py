"""Now and Queue in a browser: they keep up with others without a reload, and are used by mouse and by keyboard."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.web.browser import assert_accessible
from tests.web.conftest import People, Screenshot
from tests.web.web_system import WebSystem

SETTINGS = {"GPU_DEV_LOCAL_GPUS": "titan=h100:4;rhea=a100:2"}


async def _card(page: Page, state: str, node: str = "titan") -> Any:
    return page.locator(f"#cards .tile.{state}[href*='card={node}/']")


async def test_what_one_does_is_seen_by_the_other_without_a_reload(
    people: People, system: WebSystem, screenshot: Screenshot
) -> None:
    alice, bob = await people("alice"), await people("bob")
    await alice.page.goto("/now")
    await expect(await _card(alice.page, "free")).to_have_count(4)
    await alice.page.evaluate("document.body.dataset.same = 'yes'")
    theirs = system.submit("bob", "sleep", "3000", duration=3600, gpus=3, gpu_type="h100")
    own = system.submit("alice", "sleep", "3000", duration=3600, gpu_type="h100")
    await expect(await _card(alice.page, "others")).to_have_count(3)
    await expect(await _card(alice.page, "mine")).to_have_count(1)
    await expect(alice.page.locator("body[data-same]")).to_have_count(1)  # it is the page that was opened

    await bob.page.goto("/queue")
    await expect(bob.page.get_by_text("No job waits.")).to_be_visible()
    waits = system.submit("bob", "sleep", "3000", duration=3600, gpus=2, gpu_type="h100", name="patient")
    await expect(bob.page.get_by_role("link", name="patient")).to_be_visible()
    await expect(bob.page.locator("#queue")).to_contain_text("is number 1 in the queue")
    await assert_accessible(bob.page)
    await screenshot(bob.page, "queue")

    await alice.page.locator("#now-mine").check()
    await expect(alice.page).to_have_url(re.compile("mine=yes"))
    await expect(alice.page.locator("#cards .tile")).to_have_count(1)
    await alice.page.get_by_role("link", name="Show all", exact=True).click()
    await expect(alice.page.locator("#cards .tile")).to_have_count(6)
    await assert_accessible(alice.page)
    await screenshot(alice.page, "now")
    for job in (theirs, own, waits):
        system.rest("root").post(f"/v1/jobs/{job}/cancel").raise_for_status()
    await expect(await _card(alice.page, "free")).to_have_count(4)
    await bob.page.goto("/queue")
    await expect(bob.page.get_by_text("No job waits.")).to_be_visible()


async def test_a_card_is_looked_at_and_taken_by_keyboard(people: People) -> None:
    alice = await people("alice")
    page = alice.page
    await page.goto("/now")
    first = page.locator("#cards .tile").first
    await first.focus()
    await page.keyboard.press("ArrowRight")
    await expect(page.locator("#cards .tile").nth(1)).to_be_focused()
    await page.keyboard.press("ArrowDown")
    await expect(page.locator("#cards .tile").nth(2)).to_be_focused()
    await page.keyboard.press("Enter")
    details = page.locator("#card-details")
    await expect(details.get_by_role("heading")).to_have_text("titan, GPU 0")
    await expect(page).to_have_url(re.compile(r"/now$"))
    await expect(details).to_be_focused()
    await assert_accessible(page)
    await page.keyboard.press("Escape")
    await expect(details).to_be_hidden()
    await expect(page.locator("#cards .tile").nth(2)).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(details).to_be_visible()
    await page.keyboard.press("Tab")
    await expect(details.get_by_role("link", name="Submit a job")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile(r"/submit\?gpus=1&gpu_type=h100"))


async def test_what_is_focused_stays_so_when_something_changes(people: People, system: WebSystem) -> None:
    alice = await people("alice")
    page = alice.page
    await page.goto("/now")
    await expect(await _card(page, "free")).to_have_count(4)
    await (await _card(page, "free")).nth(3).focus()
    job = system.submit("bob", "sleep", "3000", duration=3600, gpus=4, gpu_type="h100")
    await expect(await _card(page, "others")).to_have_count(4)
    await expect((await _card(page, "others")).nth(3)).to_be_focused()
    system.rest("root").post(f"/v1/jobs/{job}/cancel").raise_for_status()
    await expect(await _card(page, "free")).to_have_count(4)


async def test_without_scripts_everything_is_there(people: People) -> None:
    alice = await people("alice", java_script_enabled=False)
    page = alice.page
    await page.goto("/now")
    await page.get_by_label("Type", exact=True).select_option("a100")
    await page.get_by_role("button", name="Show").click()
    await expect(page.locator("#cards .tile")).to_have_count(2)
    await page.locator("#cards .tile").first.click()
    await expect(page.get_by_role("heading", name="rhea, GPU 0")).to_be_visible()
    await expect(page.get_by_role("link", name="Submit a job")).to_be_visible()


@pytest.fixture
def out_of_use(system: WebSystem) -> Iterator[None]:
    """All of rhea and a GPU of titan are out of use."""
    rest = system.rest("root")
    with ExitStack() as undone:
        rest.post("/v1/nodes/rhea/cordon", json={"reason": "new fans"}).raise_for_status()
        undone.callback(lambda: rest.post("/v1/nodes/rhea/uncordon").raise_for_status())
        rest.post("/v1/nodes/titan/gpus/3/quarantine", json={"reason": "It fell off the bus"}).raise_for_status()
        undone.callback(lambda: rest.post("/v1/nodes/titan/gpus/3/release").raise_for_status())
        yield


@pytest.mark.usefixtures("out_of_use")
async def test_on_a_phone_gpus_out_of_use_are_counted_beside_the_others(people: People) -> None:
    root = await people("root", viewport={"width": 390, "height": 844})
    await root.page.goto("/now")
    for gpu_type, count in (("a100", 2), ("h100", 1)):
        row = root.page.locator("#now-types tr").filter(has=root.page.get_by_role("link", name=gpu_type, exact=True))
        out = row.locator('td[data-label="Out of use"]')
        await expect(out).to_be_visible()
        await expect(out).to_have_text(str(count))
        values = [row.locator(f'td[data-label="{name}"]') for name in ("Free", "Others’", "Out of use", "All")]
        boxes = [box for value in values if (box := await value.bounding_box()) is not None]
        assert len(boxes) == len(values)
        assert all(box["x"] >= 0 and box["x"] + box["width"] <= 390 for box in boxes), boxes
        # In reading order, beside or below each other.
        for box, following in pairwise(boxes):
            beside = box["x"] + box["width"] <= following["x"] and box["y"] == following["y"]
            assert beside or box["y"] + box["height"] <= following["y"], boxes
    await assert_accessible(root.page)

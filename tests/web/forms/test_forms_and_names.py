"""What forms and names look like: fields stand in rows, and names that read from right to left stay one word."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from playwright.async_api import Page, expect

from tests.waiting import eventually_sync
from tests.web.conftest import People
from tests.web.web_system import WebSystem

SETTINGS = {"GPU_DEV_LOCAL_GPUS": "titan=h100:1"}
_TOPS = """(form) => [...form.querySelectorAll(":scope > div > :is(input, select)")]
  .map((field) => field.getBoundingClientRect()).map(({ top, bottom, width }) => [top, bottom, width])"""


async def fields_of(page: Page, selector: str) -> list[tuple[float, float, float]]:
    """Top, bottom and width of the fields of a form or of a part of one, in px."""
    return [tuple(box) for box in await page.locator(selector).evaluate(_TOPS)]


@pytest.mark.parametrize(
    ("address", "selector"),
    [
        ("/account", 'form[action="/account/tokens"]'),
        ("/admin/policy/default", ".fields >> nth=2"),
        ("/submit", "form .fields >> nth=0"),
    ],
)
async def test_fields_of_a_row_begin_at_one_height(people: People, address: str, selector: str) -> None:
    page = (await people("root", viewport={"width": 1440, "height": 900})).page
    await page.goto(address)
    found = sorted(await fields_of(page, selector))
    assert len(found) > 3
    for (top, bottom, _), (below, *_) in pairwise(found):
        assert below - top < 2 or below >= bottom, f"{address}: {found}"


async def test_a_date_and_a_time_of_day_have_room(people: People) -> None:
    page = (await people("alice", viewport={"width": 1440, "height": 900})).page
    await page.goto("/calendar")
    for name in ("start", "end"):
        box = await page.locator(f"#book-form [name={name}]").bounding_box()
        assert box is not None
        assert box["width"] >= 220
    await expect(page.get_by_role("form", name="Find a slot")).to_have_css("border-top-width", "0px")


async def test_an_end_takes_the_place_of_the_length_that_the_form_has(people: People) -> None:
    page = (await people("alice")).page
    await page.goto("/calendar")
    day = datetime.now(UTC) + timedelta(days=3)
    await page.locator("#book-form [name=start]").fill(f"{day:%Y-%m-%d}T10:00")
    await page.locator("#book-form [name=end]").fill(f"{day:%Y-%m-%d}T15:00")
    await expect(page.locator("#booking-verdict")).to_contain_text("10:00 to 15:00")


async def test_a_long_name_of_an_earlier_job_leaves_the_form_as_wide_as_the_screen(
    people: People, system: WebSystem
) -> None:
    name = "a-name-of-one-word-" * 7
    job = system.submit("alice", "true", name=name)
    eventually_sync(lambda: system.job(job)["status"] == "succeeded")
    page = (await people("alice", viewport={"width": 390, "height": 844})).page
    await page.goto("/submit")
    await expect(page.get_by_role("link", name=name)).to_be_visible()
    assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") == 0


async def test_names_from_right_to_left_leave_figures_where_they_are_and_own_plans_are_read(
    people: People, system: WebSystem
) -> None:
    runs = system.submit("alice", "sleep", "3000", name="تدريب النموذج", duration=7200)
    eventually_sync(lambda: system.job(runs)["status"] == "running")
    waits = system.submit("alice", "true", name="next", duration=3600)
    eventually_sync(lambda: system.job(waits)["promised_start_at"] is not None)
    page = (await people("alice")).page
    await page.goto("/submit")
    link = page.locator(f'.plain-list a[href*="{runs}"]')
    name, words = (
        await link.bounding_box(),
        await link.locator("xpath=..").evaluate(
            """(row) => {
          const text = [...row.childNodes].flatMap((node) => [node, ...node.childNodes])
            .find((node) => node.nodeType === 3 && /1 GPU/.test(node.data));
          const range = new Range();
          range.setStart(text, text.data.indexOf("1"));
          range.setEnd(text, text.data.indexOf("1") + 1);
          return range.getBoundingClientRect().left;
        }"""
        ),
    )
    assert name is not None
    assert words >= name["x"] + name["width"]
    planned = page.locator(".bar-of.mine.planned").first
    await expect(planned).to_be_visible()
    ink, ground = await planned.evaluate(
        "(bar) => { const { color, backgroundImage } = getComputedStyle(bar); return [color, backgroundImage]; }"
    )
    assert ink not in ground, "words on stripes of their own colour"
    system.end_all_jobs()

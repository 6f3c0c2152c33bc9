"""The output of a job in a browser: its colours, links to its lines, and what is found in it."""

import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from playwright.async_api import Page, expect

from tests.waiting import eventually
from tests.web.browser import assert_accessible
from tests.web.conftest import People, Screenshot
from tests.web.web_system import WebSystem

LINES = "seq -f 'line %g' 1 6000; "
WAITS = "until [ -e {go} ]; do sleep 0.1; done; "
CONTRAST = """
(selector) => {
  const drawn = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const parts = (colour) => {
    drawn.clearRect(0, 0, 1, 1); drawn.fillStyle = colour; drawn.fillRect(0, 0, 1, 1);
    return [...drawn.getImageData(0, 0, 1, 1).data];
  };
  const luminance = (colour) => {
    const linear = (part) => (part <= 0.04 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = colour.map((part) => linear(part / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const groundOf = (element) => {
    const ground = parts(getComputedStyle(element).backgroundColor);
    return ground[3] === 0 ? groundOf(element.parentElement) : ground;
  };
  return [...document.querySelectorAll(selector)].map((span) => {
    const both = [luminance(parts(getComputedStyle(span).color)), luminance(groundOf(span))];
    const [dark, light] = both.sort((a, b) => a - b);
    return (light + 0.05) / (dark + 0.05);
  });
}
"""


def printing(system: WebSystem, script: str) -> str:
    """A job of Alice's that prints."""
    return system.submit("alice", "sh", "-c", script, name="printing")


async def ended(system: WebSystem, job: str) -> None:
    await eventually(lambda: system.job(job)["status"] == "succeeded")


async def is_in_view(page: Page, selector: str) -> bool:
    """Whether a line is within the log's window."""
    return bool(
        await page.evaluate(
            """(selector) => {
              const line = document.querySelector(selector)?.getBoundingClientRect();
              const log = document.getElementById("log").getBoundingClientRect();
              return line !== undefined && line.top >= log.top - 1 && line.bottom <= log.bottom + 1;
            }""",
            selector,
        )
    )


async def seen(page: Page, selector: str) -> None:
    async def in_view() -> bool:
        return await is_in_view(page, selector)

    await eventually(in_view)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_colours_of_all_kinds_are_readable(people: People, system: WebSystem, scheme: Any) -> None:
    script = r"for n in $(seq 0 5 255); do printf '\033[38;5;%dm%d\033[0m' $n $n; done; echo; "
    script += r"for n in $(seq 0 5 255); do printf '\033[48;5;%dm%d\033[31m%d\033[0m' $n $n $n; done; echo; "
    script += (
        r"for n in $(seq 0 15 255); do printf '\033[38;2;%d;90;40mt\033[48:2::9:%d:200mt\033[7mt\033[0m' $n $n; done"
    )
    job = printing(system, script)
    await ended(system, job)
    alice = await people("alice", color_scheme=scheme)
    page = alice.page
    await page.goto(f"/jobs/{job}")
    spans = page.locator("#log span")
    await expect(spans).to_have_count(52 + 52 * 2 + 18 * 3)
    contrasts = await page.evaluate(CONTRAST, "#log span")
    assert min(contrasts) >= 4.5
    # A true colour is itself, and not only the nearest of the 256.
    colours = await page.evaluate(  # at one go: what is taken from the page meanwhile has none
        "[...document.querySelectorAll('#log span')].slice(-54).map((span) => getComputedStyle(span).color)"
    )
    assert len(set(colours)) >= 18


async def test_true_colours_are_near_ones_without_scripts(people: People, system: WebSystem) -> None:
    job = printing(system, r"printf '\033[38;2;255;100;50mtrue\033[0m\n\033[7minverse\033[0m\n'; seq 1 900")
    await ended(system, job)
    alice = await people("alice", java_script_enabled=False)
    page = alice.page
    await page.goto(f"/jobs/{job}?line=1")
    span = page.locator(".ansi-f203")
    await expect(span).to_have_text("true")
    await expect(span).not_to_have_css("color", "rgb(26, 32, 44)")
    await expect(page.get_by_text("Lines 1 to 301 of the output.")).to_be_visible()
    await page.get_by_label("Line", exact=True).fill("850")
    await page.get_by_role("button", name="Go").click()
    await expect(page.locator("#log .chosen")).to_have_text("848")
    await page.get_by_role("link", name="Show its end").click()
    await expect(page.locator("#log > div").last).to_have_text("900")
    await page.goto(f"/jobs/{job}?line=5000")
    await expect(page.get_by_text("The output has no line 5000: it has 902 so far.")).to_be_visible()


async def test_a_link_to_a_line_goes_there_wherever_it_is(
    people: People, system: WebSystem, screenshot: Screenshot, tmp_path: Path
) -> None:
    job = printing(system, LINES + WAITS.format(go=tmp_path / "go") + "echo the end")
    alice = await people("alice", permissions=["clipboard-read", "clipboard-write"])
    page, log = alice.page, alice.page.get_by_role("log")
    await page.goto(f"/jobs/{job}")
    await expect(log).to_contain_text("line 6000")
    number = page.locator("#L5990")
    await number.click(position={"x": 10, "y": 8})
    await expect(page).to_have_url(re.compile(rf"/jobs/{job}#L5990$"))
    await page.locator("#L5992").click(position={"x": 10, "y": 8}, modifiers=["Shift"])
    await expect(page.locator("#log .chosen")).to_have_text(["line 5990", "line 5991", "line 5992"])
    await page.get_by_role("button", name="Copy link to lines 5990 to 5992").click()
    await expect(page.get_by_role("button", name="Link copied")).to_be_visible()
    assert await page.evaluate("navigator.clipboard.readText()") == f"{alice.url}/jobs/{job}#L5990-L5992"
    await assert_accessible(page)

    other = await alice.context.new_page()
    await other.goto(f"/jobs/{job}#L120")
    await expect(other.locator("#log .chosen")).to_have_text("line 120")
    await seen(other, "#L120")
    await expect(other.get_by_text("Lines 1 to 420 of the output.")).to_be_visible()
    await expect(other.get_by_label("Follow")).not_to_be_checked()
    await assert_accessible(other)
    await screenshot(other, "log-line")
    await other.get_by_role("link", name="Show its end").click()
    await expect(other.get_by_role("log")).to_contain_text("line 6000")
    await expect(other.get_by_label("Follow")).to_be_checked()
    await expect(other).to_have_url(f"{alice.url}/jobs/{job}")
    (tmp_path / "go").touch()
    await expect(other.get_by_role("log")).to_contain_text("the end")


async def test_a_link_to_a_line_that_was_not_printed_yet_waits_for_it(
    people: People, system: WebSystem, tmp_path: Path
) -> None:
    job = printing(system, f"echo one; {WAITS.format(go=tmp_path / 'go')} seq 2 300")
    alice = await people("alice")
    page = alice.page
    await eventually(lambda: system.job(job)["status"] == "running")
    await page.goto(f"/jobs/{job}#L150")
    await expect(page.get_by_text("The output has no line 150: it has 1 so far.")).to_be_visible()
    (tmp_path / "go").touch()
    await expect(page.locator("#log .chosen")).to_have_text("150")
    await seen(page, "#L150")
    await expect(page.get_by_text("The output has no line")).to_be_hidden()


async def test_find_counts_jumps_and_keeps_up_with_a_log_that_grows(
    people: People, system: WebSystem, screenshot: Screenshot, tmp_path: Path
) -> None:
    script = r"echo 'An ERROR at first'; " + LINES + r"printf 'an er\033[31mror\033[0m late\n'; "
    job = printing(system, script + WAITS.format(go=tmp_path / "go") + "echo error at last")
    alice = await people("alice")
    page, words = alice.page, alice.page.locator("#log-found")
    await page.goto(f"/jobs/{job}")
    await expect(page.get_by_role("log")).to_contain_text("late")
    find = page.get_by_placeholder("Find")
    await find.fill("error")
    await expect(words).to_have_text("2 lines")
    await find.press("Enter")
    await expect(words).to_have_text("1 of 2 lines")
    await expect(page.locator("#log .here")).to_have_text("An ERROR at first")
    await expect(page.locator("#L1")).to_have_class("found here")
    box, below = await page.locator("#L1").bounding_box(), await page.locator("#L2").bounding_box()
    assert box is not None
    assert below is not None
    assert below["y"] - box["y"] - box["height"] < 1, "what is found moves nothing"
    await seen(page, "#L1")
    ranges = "[...CSS.highlights.get('log-found')].map(String)"
    assert await page.evaluate(ranges) == ["ERROR"]
    await assert_accessible(page)
    await screenshot(page, "log-found")
    await find.press("Enter")
    await expect(words).to_have_text("2 of 2 lines")
    await expect(page.locator("#log .here")).to_have_text("an error late")
    assert await page.evaluate(ranges) == ["error"]
    await find.press("Enter")
    await expect(words).to_have_text("1 of 2 lines")
    await find.press("Shift+Enter")
    await expect(words).to_have_text("2 of 2 lines")
    await page.get_by_role("button", name="Previous match").click()
    await expect(words).to_have_text("1 of 2 lines")

    await page.get_by_role("link", name="Show its end").click()
    await expect(page.get_by_role("log")).to_contain_text("late")
    await find.fill("ERROR at")
    await expect(words).to_have_text("1 line")
    (tmp_path / "go").touch()
    await expect(words).to_have_text("2 lines")
    await find.fill("none of these")
    await expect(words).to_have_text("0 lines")
    await expect(page.get_by_role("button", name="Next match")).to_be_disabled()


async def test_a_progress_bar_moves_before_its_line_ends(people: People, system: WebSystem, tmp_path: Path) -> None:
    script = (
        r"printf '\r 1 of 3'; printf '\r 2 of 3'; " + WAITS.format(go=tmp_path / "go") + r"printf '\r 3 of 3\nend\n'"
    )
    job = printing(system, script)
    alice = await people("alice")
    page, lines = alice.page, alice.page.locator("#log > div")
    await page.goto(f"/jobs/{job}")
    await expect(lines).to_have_text([" 2 of 3"])
    (tmp_path / "go").touch()
    await expect(lines).to_have_text([" 3 of 3", "end"])


async def test_parts_and_matches_are_for_those_who_may_see_the_log(people: People, system: WebSystem) -> None:
    alice = await people("alice")
    job = printing(system, "echo once")
    await ended(system, job)
    answer = await alice.page.request.get(f"/jobs/{job}/log/part?line=0")
    assert answer.status == 422
    answer = await alice.page.request.get(f"/jobs/{job}/log/matches?text=")
    assert answer.status == 422
    bob = await people("bob")
    for path in ("part?line=1", "matches?text=once"):
        assert (await bob.page.request.get(f"/jobs/{job}/log/{path}")).status == 404


async def test_the_memory_of_a_page_is_bounded_and_its_search_is_not(people: People, system: WebSystem) -> None:
    job = printing(system, "seq -f 'needle %g' 1 3; seq 1 40000")
    await ended(system, job)
    alice = await people("alice")
    page = alice.page
    await page.goto(f"/jobs/{job}")
    await expect(page.locator("#log > div").last).to_have_text("40000")
    assert await page.locator("#log > div").count() <= 5000
    await page.get_by_placeholder("Find").fill("needle 2")
    await expect(page.locator("#log-found")).to_have_text("1 line")
    await page.get_by_placeholder("Find").press("Enter")
    await expect(page.locator("#log .here")).to_have_text("needle 2")
    assert await page.locator("#log > div").count() <= 5000


async def test_the_reader_stays_at_a_line_while_lines_before_it_are_dropped(
    people: People, system: WebSystem, tmp_path: Path
) -> None:
    """Lines that come push the first ones out of the page, and a stream that begins again replaces them all."""
    more = 'for part in 1 2 3 4 5 6 7 8; do seq -f "more $part.%g" 1 500; sleep 0.5; done; '
    job = printing(system, f"seq 1 2000; {WAITS.format(go=tmp_path / 'go')} {more} sleep 300")
    page = (await people("alice")).page
    await page.goto(f"/jobs/{job}")
    await expect(page.locator("#L1")).to_have_count(1)  # the stream has begun
    await expect(page.locator("#L2000")).to_have_text("2000")  # and has brought all that there is
    await page.get_by_label("Follow").uncheck()
    below = """(line) => document.getElementById(line).getBoundingClientRect().top
      - document.getElementById("log").getBoundingClientRect().top"""
    await page.evaluate("document.getElementById('L1500').scrollIntoView({block: 'start'})")
    at = await page.evaluate(below, "L1500")
    (tmp_path / "go").touch()
    await expect(page.locator("#L6000")).to_have_text("more 8.500")
    await expect(page.locator("#L1000")).to_have_count(0)
    await expect(page.get_by_text("1000 lines before these are not shown")).to_be_visible()
    assert abs(await page.evaluate(below, "L1500") - at) < 2
    await page.evaluate("document.getElementById('L5000').scrollIntoView({block: 'start'})")
    at = await page.evaluate(below, "L5000")
    await page.evaluate("document.dispatchEvent(new Event('signed-in'))")
    await expect(page.locator("#L4000")).to_have_count(0)
    assert abs(await page.evaluate(below, "L5000") - at) < 2


async def test_times_of_lines_are_shown_in_the_pages_zone(
    people: People, system: WebSystem, screenshot: Screenshot, tmp_path: Path
) -> None:
    job = printing(system, f"echo one; {WAITS.format(go=tmp_path / 'go')} echo two")
    alice = await people("alice", timezone_id="Asia/Kolkata")
    page = alice.page
    await page.goto(f"/jobs/{job}")
    await expect(page.locator("#L1")).to_have_text("one")
    shown = "getComputedStyle(document.getElementById('L1'), '::after').content"
    assert await page.evaluate(shown) == "none"
    await page.get_by_label("Times", exact=True).check()
    written = await page.locator("#L1").get_attribute("data-t")
    started = datetime.fromisoformat(system.job(job)["started_at"]).astimezone(ZoneInfo("Asia/Kolkata"))
    year = started.year
    read = datetime.strptime(f"{year} {written}", "%Y %a %d %b %H:%M:%S").replace(tzinfo=started.tzinfo)
    assert abs(read - started) < timedelta(minutes=1)
    assert str(written) in await page.evaluate(shown)
    (tmp_path / "go").touch()
    await expect(page.locator("#L2")).to_have_attribute("data-t", re.compile(r"\d\d:\d\d:\d\d$"))
    await assert_accessible(page)
    await screenshot(page, "log-times")
    lines = system.rest("alice").get(f"/v1/jobs/{job}/logs", params={"timestamps": "true"}).text.splitlines()
    assert [line.partition(" ")[2] for line in lines] == ["one", "two"]
    for line in lines:
        assert abs(datetime.fromisoformat(line.partition(" ")[0]) - started) < timedelta(minutes=2)
    assert system.rest("alice").get(f"/v1/jobs/{job}/logs").text == "one\ntwo\n"


async def test_times_move_neither_the_end_nor_what_is_read(people: People, system: WebSystem) -> None:
    """On a phone lines with their times are higher."""
    job = printing(system, "seq 1 400")
    await ended(system, job)
    page = (await people("alice", viewport={"width": 390, "height": 844})).page
    await page.goto(f"/jobs/{job}")
    times, follow = page.get_by_label("Times", exact=True), page.get_by_label("Follow")
    await seen(page, "#L400")
    await times.check()
    await seen(page, "#L400")
    await expect(follow).to_be_checked()
    await follow.uncheck()
    await page.evaluate("document.getElementById('L200').scrollIntoView({block: 'start'})")
    await times.uncheck()
    await seen(page, "#L200")
    await times.check()
    await seen(page, "#L200")

"""Every page: nothing moves under its reader, and whatever is tapped or typed into can be hit and seen.

Layout shifts (CLS) are noted as it loads and as it keeps up with changes. Targets are 24 by 24 pixels or as far apart
(WCAG 2.2, 2.5.8).
"""

from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from tests.e2e.systems.system_process import FINAL
from tests.waiting import eventually_sync
from tests.web.browser import AXE
from tests.web.conftest import People
from tests.web.every_page import NODES, addresses, make_things, tomorrow
from tests.web.web_system import WebSystem

SETTINGS = {"GPU_DEV_LOCAL_GPUS": NODES}
MOST = 0.05
"""Of shifts that nobody caused by typing or clicking; what web.dev calls good is 0.1."""
SIZES = ((1440, 900), (390, 844))
_OBSERVE = """
window.shifts = [];
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) {
    if (entry.hadRecentInput) continue;
    const moved = entry.sources.map(({ node }) => (node?.outerHTML ?? node?.textContent)?.slice(0, 120));
    window.shifts.push({ value: entry.value, moved });
  }
}).observe({ type: "layout-shift", buffered: true });
"""
# Entries come with the frame after the shift.
_SETTLED = """async () => {
  await document.fonts.ready;
  for (let frame = 0; frame < 4; frame++) await new Promise((resolve) => requestAnimationFrame(resolve));
}"""

# An entry of the timeline can be hit around its bar, see test_calendar_drawing.py.
_SMALL = """async () => {
  const asked = { exclude: [[".ec-event"]] };
  const wanted = { resultTypes: ["violations"], runOnly: { type: "rule", values: ["target-size"] } };
  const found = await axe.run(asked, wanted);
  return found.violations.flatMap(({ nodes }) => nodes.map(({ html, failureSummary }) => `${html} ${failureSummary}`));
}"""

# axe looks at neither: what a field is for, and that it is a field (WCAG 1.4.3 and 1.4.11).
_FAINT = """() => {
  const pixel = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const light = (colour) => {
    pixel.fillStyle = colour;
    pixel.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...pixel.getImageData(0, 0, 1, 1).data].map((of) => of / 255)
      .map((of) => of <= 0.04045 ? of / 12.92 : ((of + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
  };
  const contrast = (one, other) => Math.max(light(one) / light(other), light(other) / light(one));
  const ground = getComputedStyle(document.body).backgroundColor;
  return [...document.querySelectorAll("main :is(input, select, textarea, button.second)")].flatMap((field) => {
    const { backgroundColor, borderTopColor } = getComputedStyle(field);
    const words = contrast(getComputedStyle(field, "::placeholder").color, backgroundColor);
    const edge = contrast(borderTopColor, ground);
    const faint = field.matches("[type=hidden], [type=checkbox], [type=radio], .plain") || !field.checkVisibility()
      ? [] : [...(field.placeholder && words < 4.5 ? ["words", words] : []), ...(edge < 3 ? ["edge", edge] : [])];
    return faint.length ? [`${field.outerHTML.slice(0, 80)} ${faint}`] : [];
  });
}"""

# Hints and choices that a field has no room for, and buttons that touch each other (pairs of arrows are one thing).
_CROWDED = """() => {
  const pen = document.createElement("canvas").getContext("2d");
  const cut = [...document.querySelectorAll("main input[placeholder]")].filter((field) => field.checkVisibility())
    .filter((field) => {
      const { font, paddingLeft, paddingRight } = getComputedStyle(field);
      pen.font = font;
      const cross = field.type === "search" ? 16 : 0; // what clears it stands there
      const room = field.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight) - cross;
      return pen.measureText(field.placeholder).width > room + 1;
    }).map(({ placeholder }) => `cut: ${placeholder}`);
  const chosen = [...document.querySelectorAll("main select")].filter((field) => field.checkVisibility())
    .flatMap((field) => {
      const { font, paddingLeft, paddingRight } = getComputedStyle(field);
      pen.font = font;
      const room = field.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight) - 16; // of its arrow
      return [...field.options].filter(({ text }) => pen.measureText(text).width > room + 1);
    }).map(({ text }) => `cut: ${text}`);
  const boxes = [...document.querySelectorAll("main :is(button, a.button)")]
    .filter((shown) => shown.checkVisibility() && !shown.matches(".pair *, .plain, .ec *"))
    .map((shown) => [shown.innerText, shown.getBoundingClientRect()]);
  const near = (a, b, start, end) => a[start] >= b[end] - 1 && a[start] - b[end] < 3;
  const beside = (a, b, start, end) => a[start] < b[end] && b[start] < a[end];
  const touch = boxes.flatMap(([words, a]) => boxes
    .filter(([, b]) => (near(a, b, "top", "bottom") && beside(a, b, "left", "right"))
      || (near(a, b, "left", "right") && beside(a, b, "top", "bottom")))
    .map(([other]) => `${other} touches ${words}`));
  return [...cut, ...chosen, ...touch];
}"""


async def assert_still(page: Page, words: str) -> None:
    """Whatever was shown so far stayed where it was."""
    await page.evaluate(_SETTLED)
    shifts = await page.evaluate("window.shifts")
    total = sum(shift["value"] for shift in shifts)
    assert total <= MOST, f"{words} shifts by {total:.3f}: {[shift for shift in shifts if shift['value'] > MOST / 10]}"


@pytest.fixture(scope="module")
def things(system: WebSystem) -> dict[str, str]:
    """Something for every page to show, and what stands for the parts of addresses."""
    return make_things(system)


@pytest_asyncio.fixture(loop_scope="session", params=SIZES, ids=("desktop", "phone"))
async def page(request: pytest.FixtureRequest, people: People) -> AsyncIterator[Page]:
    """An administrator's page that notes its shifts."""
    width, height = request.param
    root = await people("root", viewport={"width": width, "height": height})
    await root.page.goto("/")  # with styles and fonts at hand, as everybody's second page
    await root.context.add_init_script(_OBSERVE)
    root.expect_problem("^answer: (404|409) GET")  # what can't be done is a page, too
    yield root.page
    await root.page.goto("/jobs/job-nobody")


async def test_pages_stay_where_they_are_while_they_load_and_can_be_hit(page: Page, things: dict[str, str]) -> None:
    wrong = []
    for address in [*addresses(things), "/jobs/job-nobody"]:
        await page.goto(address)
        if "/calendar" in address and await page.locator("#calendar").count():
            await expect(page.locator(".ec-row-head").first).to_be_visible()
        try:
            await assert_still(page, address)
        except AssertionError as error:
            wrong.append(str(error))
        crowded = await page.evaluate(_CROWDED)
        await page.evaluate(AXE.read_text())
        if small := [*crowded, *await page.evaluate(_SMALL)]:
            wrong.append(f"{address}: {small}")
    assert not wrong, "\n".join(wrong)


async def test_a_log_that_comes_in_pieces_stays_where_it_is(people: People, things: dict[str, str]) -> None:
    root = await people("root", viewport={"width": 1440, "height": 900})
    await root.page.goto("/")
    await root.context.add_init_script(_OBSERVE)
    line = await root.context.new_cdp_session(root.page)
    slow = {"offline": False, "latency": 0, "downloadThroughput": 8000, "uploadThroughput": 8000}  # bytes/s
    await line.send("Network.emulateNetworkConditions", slow)
    await root.page.goto("/admin/audit")
    await root.page.evaluate(_SETTLED)
    assert await root.page.evaluate("window.shifts") == []


async def test_output_has_room_once_there_is_some(
    page: Page, things: dict[str, str], system: WebSystem, tmp_path: Path
) -> None:
    """Before, a sentence says that there is none; what is below moves little as it comes."""
    go = tmp_path / "go"
    first = system.submit("root", "sleep", "3000", gpu_type="a100", name="first")
    prints = ("sh", "-c", f"until [ -e {go} ]; do sleep 0.1; done; seq 200")
    then = system.submit("root", *prints, gpu_type="a100", after=[{"job": first, "when": "ended"}])
    await page.goto(f"/jobs/{then}")
    log = page.locator("#log")
    assert await log.evaluate("(log) => log.offsetHeight") < 150
    await expect(page.locator("#log-state")).to_have_text("It has not started yet: its output appears here.")
    system.rest("root").post(f"/v1/jobs/{first}/cancel").raise_for_status()
    await expect(page.locator("#job-state .badge").first).to_have_text("running")
    await expect(page.locator(".graph [aria-current] .badge")).to_have_text("running")
    await page.evaluate("scrollTo(0, document.body.scrollHeight)")
    await page.evaluate(_SETTLED)
    await page.evaluate("window.shifts.length = 0")
    go.touch()
    await expect(log).to_contain_text("200")
    assert await log.evaluate("(log) => log.offsetHeight") > 400
    shifts = await page.evaluate("window.shifts")
    at_foot = [shift["value"] for shift in shifts if all("footer" in moved for moved in shift["moved"])]
    assert at_foot, shifts
    assert sum(at_foot) <= MOST
    await page.goto(f"/jobs/{first}")
    assert await log.evaluate("(log) => log.offsetHeight") < 150, "it printed nothing"


async def test_fields_and_what_they_are_for_can_be_seen(people: People, things: dict[str, str]) -> None:
    root = await people("root")
    for scheme in ("dark", "light"):
        await root.page.emulate_media(color_scheme=scheme)
        for address in ("/now", "/submit", "/account", "/admin/nodes"):
            await root.page.goto(address)
            faint = await root.page.evaluate(_FAINT)
            assert not faint, (address, scheme, faint)


async def test_on_a_phone_what_explains_a_page_is_read_without_scrolling_sideways(
    people: People, things: dict[str, str]
) -> None:
    page = (await people("root", viewport={"width": 390, "height": 844})).page
    await page.goto("/calendar?as=table")
    box = await page.locator(".calendar-table caption span").bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    # The last step of a running job is what it does now, that of another one is how it ended.
    for job, count_of_steps in ((things["job_id"], 3), (things["over"], 5)):
        await page.goto(f"/jobs/{job}")
        steps = page.locator(".of-life li")
        await expect(steps).to_have_count(count_of_steps)
        life, last = await page.locator(".of-life").bounding_box(), await steps.last.bounding_box()
        assert life is not None
        assert last is not None
        assert last["y"] + last["height"] <= life["y"] + life["height"]


async def test_on_a_phone_tab_goes_to_nothing_out_of_sight(people: People, things: dict[str, str]) -> None:
    """Heads of tables are for screen readers alone there; what they do, the form above them does."""
    root = await people("root", viewport={"width": 390, "height": 844})
    for address in ("/queue", "/jobs", "/usage", "/admin/users"):
        await root.page.goto(address)
        assert await root.page.locator("thead a").count()
        stops = []
        for _ in range(60):
            await root.page.keyboard.press("Tab")
            stops.append(await root.page.evaluate("document.activeElement.closest('thead') === null"))
        assert all(stops), address
        await expect(root.page.get_by_label("Sort by")).to_be_visible()


async def test_pages_stay_where_they_are_while_they_keep_up(
    page: Page, things: dict[str, str], system: WebSystem
) -> None:
    """Of what others do, and one does elsewhere, pages show the change and nothing else."""
    wrong = []
    for address, act, shown in live_changes(system, things):
        await page.goto(address)
        await page.evaluate(_SETTLED)
        await page.evaluate("window.shifts.length = 0")
        words = act()
        await expect(page.locator(shown).filter(has_text=words).first).to_be_attached()
        try:
            await assert_still(page, f"{address}, while it keeps up,")
        except AssertionError as error:
            wrong.append(str(error))
    assert not wrong, "\n".join(wrong)


def live_changes(system: WebSystem, things: dict[str, str]) -> Iterator[tuple[str, Callable[[], str], str]]:
    """Pages, something that happens, and an element that then has words that are returned."""
    number = count(1)
    whole: list[str] = []

    def submitted(**more: Any) -> str:
        name = f"late-{next(number)}"
        system.submit("root", "sleep", "3000", name=name, duration=3600, **more)
        return name

    def booked() -> str:
        title = f"late {next(number)}"
        body = {"gpus": 1, "gpu_type": "h100", "start": tomorrow(78), "duration": 7200 * 6, "title": title}
        system.rest("root").post("/v1/bookings", json=body).raise_for_status()
        return title

    def moved() -> str:
        minute = next(number)
        start = datetime.fromisoformat(tomorrow(60)).replace(minute=minute)
        address = f"/v1/bookings/{things['booking_id']}"
        system.rest("root").patch(address, json={"start": start.isoformat()}).raise_for_status()
        return f"{start:%H:%M}"

    def cancelled() -> str:
        system.rest("root").post(f"/v1/jobs/{ends}/cancel").raise_for_status()
        return "cancelled"

    def taken() -> str:
        """All of a type, until tomorrow: numbers appear that were zero, and a time with its day in place of "now"."""
        whole.append(system.submit("root", "sleep", "3000", duration=86400, gpus=2, gpu_type="a100"))
        return f"{(datetime.now(UTC) + timedelta(days=1)):%a}"

    yield "/now", taken, "#now-types time"
    system.rest("root").post(f"/v1/jobs/{whole[0]}/cancel").raise_for_status()
    eventually_sync(lambda: system.job(whole[0])["status"] in FINAL)
    ends = system.submit("root", "sleep", "3000", duration=86400, gpu_type="a100")
    eventually_sync(lambda: system.job(ends)["status"] == "running")  # or it leaves the queue while that is looked at
    for address, shown in (("/queue", "#queue"), ("/jobs", "main table")):
        yield address, lambda: submitted(gpus=4, nodes=2, gpu_type="h100"), shown
    for view in ("view=week&by=type", "view=week&by=node", "view=week&by=card"):
        yield f"/calendar?{view}", booked, "#calendar .ec-event"
    yield f"/bookings/{things['booking_id']}", moved, "main"
    yield f"/jobs/{ends}", cancelled, "main"

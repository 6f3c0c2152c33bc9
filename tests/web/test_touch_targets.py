"""Whatever is tapped or typed into can be hit (24 by 24 pixels or as far apart, WCAG 2.2, 2.5.8), and seen."""

import pytest
from playwright.async_api import expect

from tests.web.browser import AXE
from tests.web.conftest import People
from tests.web.every_page import NODES, addresses, make_things
from tests.web.web_system import WebSystem

SETTINGS = {"GPU_DEV_LOCAL_GPUS": NODES}
# An entry of the timeline can be hit around its bar, see test_calendar_drawing.py.
_SMALL = """async () => {
  const asked = { exclude: [[".ec-event"]] };
  const wanted = { resultTypes: ["violations"], runOnly: { type: "rule", values: ["target-size"] } };
  const found = await axe.run(asked, wanted);
  return found.violations.flatMap(({ nodes }) => nodes.map(({ html, failureSummary }) => `${html} ${failureSummary}`));
}"""


@pytest.fixture(scope="module")
def things(system: WebSystem) -> dict[str, str]:
    """Something for every page to show, and what stands for the parts of addresses."""
    return make_things(system)


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


async def test_fields_and_what_they_are_for_can_be_seen(people: People, things: dict[str, str]) -> None:
    root = await people("root")
    for scheme in ("dark", "light"):
        await root.page.emulate_media(color_scheme=scheme)
        for address in ("/now", "/submit", "/account", "/admin/nodes"):
            await root.page.goto(address)
            faint = await root.page.evaluate(_FAINT)
            assert not faint, (address, scheme, faint)


# Hints that a field has no room for, and buttons that touch each other (pairs of arrows are one thing).
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
  const boxes = [...document.querySelectorAll("main :is(button, a.button)")]
    .filter((shown) => shown.checkVisibility() && !shown.matches(".pair *, .plain, .ec *"))
    .map((shown) => [shown.innerText, shown.getBoundingClientRect()]);
  const near = (a, b, start, end) => a[start] >= b[end] - 1 && a[start] - b[end] < 3;
  const beside = (a, b, start, end) => a[start] < b[end] && b[start] < a[end];
  const touch = boxes.flatMap(([words, a]) => boxes
    .filter(([, b]) => (near(a, b, "top", "bottom") && beside(a, b, "left", "right"))
      || (near(a, b, "left", "right") && beside(a, b, "top", "bottom")))
    .map(([other]) => `${other} touches ${words}`));
  return [...cut, ...touch];
}"""


@pytest.mark.parametrize("size", [(1440, 900), (390, 844)], ids=("desktop", "phone"))
async def test_whatever_is_tapped_can_be_hit_and_hints_have_room(
    people: People, things: dict[str, str], size: tuple[int, int]
) -> None:
    root = await people("root", viewport={"width": size[0], "height": size[1]})
    await root.context.add_init_script(path=AXE)
    root.expect_problem("^answer: (404|409) GET")  # what can't be done is a page, too
    found = {}
    for address in [*addresses(things), "/jobs/job-nobody"]:
        await root.page.goto(address)
        if await root.page.locator("#calendar").count():
            await expect(root.page.locator(".ec-row-head").first).to_be_visible()
        crowded = await root.page.evaluate(_CROWDED)
        if wrong := [*crowded, *await root.page.evaluate(_SMALL)]:
            found[address] = wrong
    assert not found


async def test_on_a_phone_what_explains_a_page_is_read_without_scrolling_sideways(
    people: People, things: dict[str, str]
) -> None:
    page = (await people("root", viewport={"width": 390, "height": 844})).page
    await page.goto("/calendar?as=table")
    box = await page.locator(".calendar-table caption span").bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    # The last step of a running job is what it does now.
    await page.goto(f"/jobs/{things['job_id']}")
    steps = page.locator(".of-life li")
    await expect(steps).to_have_count(3)
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

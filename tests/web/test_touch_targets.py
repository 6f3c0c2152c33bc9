"""Targets of every page are 24 by 24 pixels, or as far from all others as if they were (WCAG 2.2, 2.5.8)."""

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
  const found = await axe.run(asked, { runOnly: { type: "rule", values: ["target-size"] } });
  return found.violations.flatMap(({ nodes }) => nodes.map(({ html, failureSummary }) => `${html} ${failureSummary}`));
}"""


@pytest.fixture(scope="module")
def things(system: WebSystem) -> dict[str, str]:
    """Something for every page to show, and what stands for the parts of addresses."""
    return make_things(system)


@pytest.mark.parametrize("size", [(1440, 900), (390, 844)], ids=("desktop", "phone"))
async def test_whatever_is_tapped_can_be_hit(people: People, things: dict[str, str], size: tuple[int, int]) -> None:
    root = await people("root", viewport={"width": size[0], "height": size[1]})
    root.expect_problem("^answer: (404|409) GET")  # what can't be done is a page, too
    for address in [*addresses(things), "/jobs/job-nobody"]:
        await root.page.goto(address)
        if await root.page.locator("#calendar").count():
            await expect(root.page.locator(".ec-row-head").first).to_be_visible()
        await root.page.evaluate(AXE.read_text())
        small = await root.page.evaluate(_SMALL)
        assert not small, (address, small)

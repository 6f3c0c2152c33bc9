"""The use of 4,000 GPUs in a browser: drawn in blocks, readable without colour and without scripts, and kept up.

How long the longest task is, `benchmarks.browser.pages_large` says.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from api_service.web.fleet.use_map import MOST_IN_BLOCK
from reservation_core.domain.cards.node_reports import GpuReport, NodeReport
from reservation_core.domain.gpu_use.samples import GpuSample
from reservation_core.domain.model import ForeignPod
from reservation_core.domain.statuses import Role
from reservation_core.runtime.settings.components import ApiSettings
from reservation_core.runtime.wiring import Runtime, open_runtime
from reservation_core.usecases.gpu_use.store_samples import store_samples
from tests.waiting import eventually
from tests.web.browser import assert_accessible, open_person
from tests.web.conftest import Screenshot
from tests.web.layout import assert_apart
from tests.web.nodes.test_many_cards import looking, resize

NODES, CARDS, RACK = 500, 8, 25
NAME = "gpu-r{0:02}-n{1:03}.cluster.example.org"
LAST = NAME.format((NODES - 1) // RACK, NODES - 1)
MOST_SHIFT = 0.05
_OBSERVE = """
window.shifted = 0;
new PerformanceObserver((list) => list.getEntries().forEach((entry) => {
  if (!entry.hadRecentInput) window.shifted += entry.value;
})).observe({ type: "layout-shift", buffered: true });
"""
# How many cells appear from one frame to the next, at most.
_COUNT = """{
  window.most = 0;
  let before = 0;
  const count = () => {
    const shown = document.querySelectorAll("#cards .cells:not(.later) > a").length;
    window.most = Math.max(window.most, shown - before);
    before = shown;
    requestAnimationFrame(count);
  };
  requestAnimationFrame(count);
}"""
_SETTLED = """async () => {
  await document.fonts.ready;
  for (let frame = 0; frame < 4; frame++) await new Promise((resolve) => requestAnimationFrame(resolve));
  return window.shifted;
}"""
_LOOKS = """all => all.map((cell) => { const style = getComputedStyle(cell); return [
  [...cell.classList].at(-1), style.backgroundImage.replaceAll(/rgba?\\([^)]*\\)/g, "") + style.borderStyle]; })"""
_REFRESH = "document.dispatchEvent(new Event('visibilitychange'))"


def sample_of(node: int, index: int) -> float | None:
    """Every eleventh GPU has no sample; the others have any use from 0 to 1."""
    number = node * CARDS + index
    return None if number % 11 == 0 else number * 37 % 101 / 100


async def sampled(runtime: Runtime, *, last: float | None = None) -> None:
    """All GPUs are sampled now; `last`: only the last one, with this use."""
    now = runtime.clock.now()
    chosen = [(NODES - 1, CARDS - 1)] if last is not None else [(n, i) for n in range(NODES) for i in range(CARDS)]
    values = [(node, index, sample_of(node, index) if last is None else last) for node, index in chosen]
    await store_samples(
        runtime.uow,
        [GpuSample(f"GPU-{node}-{index}", now, value) for node, index, value in values if value is not None],
    )


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(chromium: Path, database_url: str, tmp_path: Path) -> AsyncIterator[Runtime]:
    """So many GPUs, in a database, with samples that last as long as the test."""
    async with open_runtime(ApiSettings(home=tmp_path / "home", local_gpus="h100:1"), database_url) as runtime:
        reports = [
            NodeReport(
                name=NAME.format(node // RACK, node),
                ready=True,
                schedulable=True,
                gpus=tuple(GpuReport(index, "h100", f"GPU-{node}-{index}", None) for index in range(CARDS)),
            )
            for node in range(NODES)
        ]
        async with runtime.uow() as uow:
            await uow.inventory.update(reports, list[ForeignPod](), runtime.clock.now())
        yield runtime


@pytest.fixture(autouse=True)
def slow_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples count for half an hour."""
    monkeypatch.setenv("GPU_DEV_SAMPLE_EVERY_S", "600")


async def _assert_drawn_in_blocks(page: Page) -> None:
    """Few cells from one frame to the next, and nothing moves for them."""
    await page.goto("/now?view=use")
    await expect(page.locator("#cards .cells > a")).to_have_count(NODES * CARDS)
    await expect(page.locator("#cards .later")).to_have_count(0)
    assert await page.evaluate(_SETTLED) <= MOST_SHIFT
    assert 0 < await page.evaluate("window.most") <= MOST_IN_BLOCK


async def test_four_thousand_gpus_in_blocks(browser: Browser, cluster: Runtime, screenshot: Screenshot) -> None:
    await sampled(cluster)
    async with looking(browser, cluster, "alice", Role.USER) as alice:
        page = alice.page
        await page.context.add_init_script(_OBSERVE)
        await page.context.add_init_script(_COUNT)
        for width, height in ((1440, 900), (390, 844)):
            await resize(page, width, height)
            await _assert_drawn_in_blocks(page)
            await assert_apart(page, "#cards .group-head, #cards .cells > a")
            await assert_accessible(page)
        await resize(page, 1440, 900)
        await screenshot(page, "now-use-4000")
        await _assert_readable_without_colour(page)
        await _assert_used_by_keyboard_and_pointer(page)
        await _assert_kept_up(page, cluster)


async def _assert_readable_without_colour(page: Page) -> None:
    """Each step has a look of its own with all colours taken out of it."""
    cells = page.locator("#cards .cells > a")
    looks = {tuple(look) for look in await cells.evaluate_all(_LOOKS)}
    assert {step for step, _ in looks} == {"un", "u0", "u1", "u2", "u3", "u4"}
    assert len({look for _, look in looks}) == 6
    number = (NODES * CARDS + 10) // 11
    await expect(page.locator(".key.of-use")).to_contain_text(f"No data: {number}")
    await expect(page.locator("#cards .cells > .un")).to_have_count(number)
    await expect(page.locator("#cards .sum").first).to_contain_text("of 200 GPUs below 10%, mean ")


async def _assert_used_by_keyboard_and_pointer(page: Page) -> None:
    second = page.locator("#cards .cells > a").nth(1)
    await page.locator("#cards .group-head a").first.focus()
    await page.keyboard.press("ArrowRight")
    await page.keyboard.press("ArrowRight")
    await expect(second).to_be_focused()
    said = f"{NAME.format(0, 0)}, GPU 1: 37% used, free"
    await expect(second).to_have_accessible_name(said)
    shown = await second.evaluate("cell => getComputedStyle(cell, '::after').content")
    assert shown.startswith(f'"{said}"')
    await second.click()
    details = page.locator("#card-details")
    await expect(details).to_contain_text("37% of the time")
    await page.keyboard.press("Escape")


async def _assert_kept_up(page: Page, cluster: Runtime) -> None:
    cell = page.locator("#cards .cells > a").last
    await expect(cell).to_have_attribute("title", f"{LAST}, GPU 7: 99% used, free")
    await cell.focus()
    await sampled(cluster, last=0.04)

    async def shown() -> bool:
        await page.evaluate(_REFRESH)
        return await cell.get_attribute("title") == f"{LAST}, GPU 7: 4% used, free"

    await eventually(shown)
    await expect(cell).to_have_class("u u0")
    await expect(cell).to_be_focused()


async def test_a_group_is_chosen_and_the_view_is_left(browser: Browser, cluster: Runtime) -> None:
    await sampled(cluster)
    async with looking(browser, cluster, "alice", Role.USER) as alice:
        page = alice.page
        await page.goto("/now")
        await page.get_by_label("Show", exact=True).select_option("use")
        await expect(page.locator("#cards .cells > a")).to_have_count(NODES * CARDS)
        await page.get_by_role("link", name="h100 r01").click()
        await expect(page.locator("#cards .cells > a")).to_have_count(RACK * CARDS)
        await assert_accessible(page)
        await page.get_by_label("Show", exact=True).select_option("map")
        await expect(page.locator("#cards .cells > a")).to_have_count(RACK)


async def test_without_scripts(browser: Browser, cluster: Runtime) -> None:
    await sampled(cluster)
    async with looking(browser, cluster, "alice", Role.USER) as alice:
        cookies = await alice.page.context.cookies()
        async with open_person(browser, alice.url, java_script_enabled=False) as other:
            await other.context.add_cookies([dict(cookie) for cookie in cookies])
            await other.page.goto("/now?view=use")
            await expect(other.page.locator("#cards .sum").first).to_contain_text("of 200 GPUs below 10%, mean ")
            await other.page.locator("#cards .cells > a").nth(1).click()
            await expect(other.page.locator(".chosen")).to_contain_text("37% of the time")

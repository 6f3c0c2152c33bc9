"""The page of a node: how often an open one asks, and for what."""

from playwright.async_api import expect

from tests.web.conftest import People
from tests.web.web_system import WebSystem

SETTINGS = {"GPU_DEV_LOCAL_GPUS": "titan=h100:4;rhea=a100:2"}


async def test_an_open_page_of_a_node_asks_for_its_part_every_ten_seconds_at_most(
    people: People, system: WebSystem
) -> None:
    page = (await people("alice")).page
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.removeprefix(system.url)))
    await page.clock.install()
    await page.goto("/nodes/titan")
    free = page.get_by_role("list", name="GPUs now")
    await expect(free).to_contain_text("Free")
    opened_ms = await page.evaluate("Date.now()")
    changed = "for (const topic of ['now', 'calendar', 'now']) document.body.dispatchEvent(new Event(`live:${topic}`))"
    for _ in range(3):
        await page.clock.fast_forward(10_000)
        async with page.expect_response("**/nodes/titan/now"):
            await page.evaluate(changed)
        await page.evaluate(changed)
    assert asked.count("/nodes/titan") == 1, asked
    # Its clock goes on meanwhile, by as much as the machine is slow. Perhaps it asked once as it opened.
    tens = (await page.evaluate("Date.now()") - opened_ms) // 10_000
    assert 3 <= asked.count("/nodes/titan/now") <= tens + 1, asked
    await expect(free).to_contain_text("Free")

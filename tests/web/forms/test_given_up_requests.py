"""Requests of a page's parts that nobody waits for any more: to give one up is no error in the console."""

import asyncio

import pytest
from playwright.async_api import Browser, expect

from tests.waiting import eventually
from tests.web.browser import open_person
from tests.web.scripted_site import ScriptedSite
from tests.web.test_scripts import HEAD

PAGE = (
    f"{HEAD}<body data-user=alice data-zone=UTC><div id=problems role=alert></div>"
    "<div id=around><div id=part hx-get=/part hx-trigger=refresh hx-swap=innerHTML hx-sync='this:replace'>old</div>"
    "</div><p>and <a href=/other>other</a></p>"
)
GIVE_UP = {
    "asked anew": "document.getElementById('part').dispatchEvent(new Event('refresh'))",
    "the part goes": "document.getElementById('part').remove()",
    "the part is aborted and goes": "document.getElementById('part').dispatchEvent("
    "new CustomEvent('htmx:abort', {bubbles: true, detail: {}})); document.getElementById('part').remove()",
    "what is around it goes": "document.getElementById('around').replaceChildren()",
    "the page is left": "location.href = '/other'",
}


@pytest.mark.parametrize("how", GIVE_UP)
async def test_a_request_that_is_given_up_is_no_error(browser: Browser, scripted: ScriptedSite, how: str) -> None:
    scripted.pages |= {"/": PAGE, "/other": f"{HEAD}<body><p>other"}
    scripted.parts["/part"] = (200, "new")
    scripted.slow["/part"] = asyncio.Event()
    said: list[str] = []
    async with open_person(browser, scripted.url) as somebody:
        page = somebody.page
        page.on("console", lambda message: said.append(message.text))
        await page.goto("/")
        await page.evaluate("document.getElementById('part').dispatchEvent(new Event('refresh'))")
        await eventually(lambda: scripted.asked["/part"] == 1)
        await page.evaluate(GIVE_UP[how])
        if how == "asked anew":
            await eventually(lambda: scripted.asked["/part"] == 2)
        scripted.slow["/part"].set()
        if how == "asked anew":
            await expect(page.locator("#part")).to_have_text("new")
        await expect(page.get_by_text("other").last).to_be_visible()
        await page.evaluate("fetch('/other').then((answer) => answer.text())")  # after the answer to what was given up
        await expect(page.locator("#problems:not(:empty)")).to_have_count(0)
    assert said == []

"""A second click while the answer is slow."""

import asyncio
from collections.abc import AsyncIterator

import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.waiting import eventually
from tests.web.browser import Person, open_person
from tests.web.scripted_site import ScriptedSite
from tests.web.test_scripts import HEAD, SESSION

FORM = (
    f"{HEAD}<body data-user=alice data-zone=UTC><main id=main><form method=post action=/take>"
    "<input type=hidden name=csrf_token value=old><input type=hidden name=key value=first>"
    "<label>Name <input name=name autocomplete=off></label><button name=way value=fast>Send</button></form></main>"
)


@pytest_asyncio.fixture(loop_scope="session")
async def person(browser: Browser, scripted: ScriptedSite) -> AsyncIterator[Person]:
    """Somebody on a page with a form whose answer is slow."""
    scripted.pages |= {"/form": FORM, "/take": "<!doctype html><html lang=en><title>Taken</title><h1>Taken</h1>"}
    scripted.parts["/session"] = SESSION
    scripted.slow["/take"] = asyncio.Event()
    async with open_person(browser, scripted.url) as somebody:
        await somebody.page.goto("/form")
        yield somebody


async def click_twice(person: Person, scripted: ScriptedSite, between: str) -> None:
    """Click, wait until the server has what was sent, do `between`, and click again.

    A script of the page does it: nothing reaches a page from outside while it is about to go.
    """
    scripted.parts["/again"] = (200, "not yet")
    await person.page.evaluate(
        f"""() => {{
          const button = document.querySelector("button");
          const said = async () => (await fetch("/again")).text();
          const again = async () => {{
            while ((await said()) !== "now") await new Promise((resolve) => setTimeout(resolve, 20));
            {between};
            button.click();
          }};
          button.click();
          void again();
        }}"""
    )
    await eventually(lambda: scripted.asked["/take"] == 1)
    scripted.parts["/again"] = (200, "now")
    await eventually(lambda: len(scripted.sent) == 2)
    scripted.slow["/take"].set()
    await expect(person.page.get_by_role("heading", name="Taken")).to_be_visible()


async def test_what_is_sent_twice_has_one_key(person: Person, scripted: ScriptedSite) -> None:
    # As when a part of the page is made anew meanwhile.
    await click_twice(person, scripted, "document.querySelector('[name=key]').value = 'another'")
    assert [(sent["key"], sent["csrf_token"]) for sent in scripted.sent] == [("first", "anew")] * 2


async def test_what_is_sent_from_a_page_that_the_browser_kept_has_another_key(
    person: Person, scripted: ScriptedSite
) -> None:
    shown_again = "window.dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))"
    await click_twice(person, scripted, shown_again)
    first, second = (sent["key"] for sent in scripted.sent)
    assert first == "first"
    assert second.startswith("first.")

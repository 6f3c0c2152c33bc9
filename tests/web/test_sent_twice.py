"""A second click while the answer is slow."""

import asyncio
from collections.abc import AsyncIterator

import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.waiting import eventually
from tests.web.browser import Person, open_person
from tests.web.scripted_site import ScriptedSite
from tests.web.test_scripts import HEAD, SESSION

SLOW_MS = 10_000
FORM = (
    f"{HEAD}<body data-user=alice data-zone=UTC><main id=main><form method=post action=/take>"
    "<input type=hidden name=csrf_token value=old><input type=hidden name=key value=first>"
    "<label>Name <input name=name autocomplete=off></label><button name=way value=fast>Send</button></form></main>"
)


# What waits so long in a page waits until the test lets it be over.
HELD = f"""const later = window.setTimeout; window.held = [];
window.setTimeout = (act, delay, ...more) => delay === {SLOW_MS} ? held.push(act) : later(act, delay, ...more);"""


@pytest_asyncio.fixture(loop_scope="session")
async def person(browser: Browser, scripted: ScriptedSite) -> AsyncIterator[Person]:
    """Somebody on a page with a form whose answer is slow."""
    scripted.pages |= {"/form": FORM, "/take": "<!doctype html><html lang=en><title>Taken</title><h1>Taken</h1>"}
    scripted.parts["/session"] = SESSION
    scripted.slow["/take"] = asyncio.Event()
    async with open_person(browser, scripted.url) as somebody:
        await somebody.page.add_init_script(HELD)
        await somebody.page.goto("/form")
        yield somebody


async def click_twice(person: Person, scripted: ScriptedSite, between: str = "") -> None:
    """Click, wait until the server has what was sent, do `between`, and click again.

    A script of the page does it: nothing reaches a page from outside while it is about to go.
    """
    scripted.parts |= {"/again": (200, "not yet"), "/clicked": (200, "")}
    await person.page.evaluate(
        f"""() => {{
          const button = document.querySelector("button");
          const said = async () => (await fetch("/again")).text();
          const again = async () => {{
            while ((await said()) !== "now") await new Promise((resolve) => setTimeout(resolve, 20));
            {between};
            button.click();
            await fetch("/session");
            await fetch("/clicked");
          }};
          button.click();
          void again();
        }}"""
    )
    await eventually(lambda: scripted.asked["/take"] == 1)
    scripted.parts["/again"] = (200, "now")


async def test_a_second_click_neither_sends_again_nor_ends_the_wait(person: Person, scripted: ScriptedSite) -> None:
    await click_twice(person, scripted)
    await eventually(lambda: scripted.asked["/clicked"] == 1)
    # What the second click began would have begun by asking for the session, before the script did.
    assert (scripted.asked["/session"], scripted.asked["/take"]) == (2, 1)
    scripted.slow["/take"].set()
    await expect(person.page.get_by_role("heading", name="Taken")).to_be_visible()
    assert [sent["key"] for sent in scripted.sent] == ["first"]


async def test_what_is_sent_again_after_a_while_has_the_same_key(person: Person, scripted: ScriptedSite) -> None:
    # As when a part of the page is made anew meanwhile.
    await click_twice(
        person, scripted, "held.forEach((act) => act()); document.querySelector('[name=key]').value = 'b'"
    )
    await eventually(lambda: scripted.asked["/take"] == 2)
    assert [(sent["key"], sent["csrf_token"]) for sent in scripted.sent] == [("first", "anew")] * 2
    scripted.slow["/take"].set()
    await expect(person.page.get_by_role("heading", name="Taken")).to_be_visible()

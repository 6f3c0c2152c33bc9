"""What browser tests stand on: a page that is well, and that whatever is wrong with one is noticed."""

import re

import pytest
from playwright.async_api import Browser, expect

from tests.web.browser import Person, assert_accessible, assert_fits, axe, open_person, sign_in
from tests.web.conftest import People, Screenshot
from tests.web.scripted_site import ScriptedSite
from tests.web.web_system import WebSystem

WELL = "<!doctype html><html lang=en><title>Well</title><main><h1>Well</h1></main></html>"


async def test_the_reference_is_well(people: People, screenshot: Screenshot) -> None:
    somebody = await people(None)
    await somebody.page.goto("/docs")
    await expect(somebody.page.get_by_role("heading", level=1)).to_have_text("GPU Dev Server")
    await assert_accessible(somebody.page)
    await screenshot(somebody.page, "reference")


async def test_people_sign_in_each_at_a_browser_of_their_own(people: People, system: WebSystem) -> None:
    alice, root, somebody = await people(None), await people(None), await people(None)
    await sign_in(alice.page, system.tokens["alice"])
    await sign_in(root.page, system.tokens["root"])
    await expect(alice.page.get_by_role("link", name="alice")).to_be_visible()
    await expect(root.page.get_by_role("link", name="root")).to_be_visible()
    await somebody.page.goto("/")
    await expect(somebody.page).to_have_url(re.compile(r"/sign-in(\?|$)"))


@pytest.mark.parametrize(
    ("page", "found"),
    [
        ("<script nonce=n>console.error('oh')</script>", "console: oh"),
        ("<script nonce=n>throw new Error('broken')</script>", "script: .*broken"),
        ("<script>1</script>", "policy: script-src-elem refuses inline"),
        ("<p style='color:red'>x", "policy: style-src-attr refuses inline"),
        ("<img src=/not-there alt=''>", "answer: 404 GET .*/not-there"),
        ("<img src='http://localhost:9/x' alt=''>", "elsewhere: GET http://localhost:9/x"),
        ("<script nonce=n>fetch('/cut').catch(() => 0)</script>", "failed: GET .*/cut: net::ERR_EMPTY_RESPONSE"),
    ],
)
async def test_whatever_is_wrong_with_a_page_is_noticed(
    browser: Browser, scripted: ScriptedSite, page: str, found: str
) -> None:
    scripted.pages["/"] = f"{WELL}{page}"
    with pytest.raises(AssertionError, match=found):
        async with open_person(browser, scripted.url) as person:
            await person.page.goto("/", wait_until="networkidle")
    async with open_person(browser, scripted.url) as person:
        # What comes with it: the picture from elsewhere is refused, too.
        person.expect_problem(found)
        person.expect_problem("^policy|^console|^script|^answer|^elsewhere|^failed")
        await person.page.goto("/", wait_until="networkidle")


async def test_a_problem_that_was_expected_has_to_come(browser: Browser, scripted: ScriptedSite) -> None:
    scripted.pages["/"] = WELL
    with pytest.raises(AssertionError, match="nothing was like 404"):
        async with open_person(browser, scripted.url) as person:
            await _expect_a_problem(person)


async def test_what_is_hard_to_read_or_to_reach_is_found_whatever_the_policy(
    browser: Browser, scripted: ScriptedSite
) -> None:
    scripted.pages["/"] = f"{WELL}<input><p class=wide>x</p><style nonce=n>.wide {{ width: 900px }}</style>"
    async with open_person(browser, scripted.url) as person:
        await person.page.goto("/")
        assert {violation["id"] for violation in await axe(person.page)} == {"label"}
        with pytest.raises(AssertionError, match="label"):
            await assert_accessible(person.page)
        with pytest.raises(AssertionError, match="px wide at 360 px"):
            await assert_fits(person.page)


async def _expect_a_problem(person: Person) -> None:
    person.expect_problem("404")
    await person.page.goto("/")

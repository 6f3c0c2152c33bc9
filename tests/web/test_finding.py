"""The palette and the keys: by keyboard alone, and on a phone by touch."""

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from playwright.async_api import Error, Locator, Page, Route, expect

from tests.waiting import eventually
from tests.web.browser import DESKTOP, PHONE, assert_accessible, assert_fits
from tests.web.conftest import People, Screenshot
from tests.web.web_system import WebSystem


def field_of(page: Page) -> Locator:
    """The palette's field."""
    return page.get_by_role("combobox", name="Name or id")


async def expect_chosen(page: Page, name: str) -> None:
    """The option that is seen to be chosen is the one that assistive technology is told of."""
    option = page.locator("[role=option][aria-selected=true]")
    await expect(option).to_have_count(1)
    await expect(option).to_contain_text(name)
    place = await option.get_attribute("id")
    await expect(field_of(page)).to_have_attribute("aria-activedescendant", str(place))


async def expect_page(page: Page, address: str) -> None:
    """The address matches, and the page hears keys."""
    await expect(page).to_have_url(re.compile(address))
    await page.wait_for_load_state("domcontentloaded")


async def test_a_job_is_found_and_opened_by_keyboard_alone(
    people: People, system: WebSystem, screenshot: Screenshot
) -> None:
    system.submit("alice", "sleep", "300", name="findable one")
    second = system.submit("alice", "sleep", "300", name="findable two")
    system.submit("bob", "sleep", "300", name="findable of a colleague")
    page = (await people("alice")).page
    await page.goto("/")
    await page.keyboard.press("Control+k")
    field = field_of(page)
    await expect(field).to_be_focused()
    await expect(page.get_by_role("group", name="Pages")).to_be_visible()
    await page.keyboard.type("findable")
    await expect(page.get_by_role("status").filter(has_text="2 found")).to_be_visible()
    await expect_chosen(page, "findable two")
    await page.keyboard.press("ArrowDown")
    await expect_chosen(page, "findable one")
    await page.keyboard.press("ArrowDown")
    await expect_chosen(page, "findable two")
    await page.keyboard.press("ArrowUp")
    await page.keyboard.press("ArrowUp")
    await expect_chosen(page, "findable two")
    await assert_accessible(page)
    await screenshot(page, "palette")
    await page.keyboard.press("Enter")
    await expect_page(page, f"/jobs/{second}$")


async def test_enter_waits_for_the_answer_to_what_was_typed_last(people: People, system: WebSystem) -> None:
    job = system.submit("alice", "sleep", "300", name="quick")
    page = (await people("alice")).page
    await page.goto("/")
    await page.keyboard.press("/")
    await expect(page.get_by_role("option", name="Calendar")).to_be_visible()
    await page.keyboard.type(job)
    await page.keyboard.press("Enter")
    await expect_page(page, f"/jobs/{job}$")


async def test_a_late_answer_to_less_text_changes_nothing(people: People) -> None:
    page = (await people("alice")).page
    await page.goto("/")
    held: list[Route] = []

    async def hold(route: Route) -> None:
        held.append(route)

    await page.route("**/search?q=cal", hold)
    await page.keyboard.press("/")
    await page.keyboard.type("cal")
    await eventually(lambda: len(held) == 1)
    await page.keyboard.type("xyz")
    await expect(page.get_by_text("Nothing matches “calxyz”.")).to_be_visible()
    with suppress(Error):  # the page does not wait for it any more
        late = [{"title": "Pages", "links": [{"name": "Late", "detail": "", "href": "/late"}]}]
        await held[0].fulfill(json=late)
    await page.evaluate("fetch('/session', {headers: {'HX-Request': 'true'}}).then((answer) => answer.text())")
    await expect(page.get_by_role("dialog").get_by_role("option")).to_have_count(0)
    await expect(field_of(page)).to_have_attribute("aria-expanded", "false")


async def test_enter_goes_nowhere_once_its_question_is_given_up(people: People) -> None:
    """By more letters, or by Escape: what is in the list then answers an earlier question."""
    page = (await people("alice")).page
    await page.goto("/")
    held: list[Route] = []

    async def hold(route: Route) -> None:
        held.append(route)

    await page.route("**/search?q=cal", hold)
    here = page.url
    for way_out in ("xyz", "Escape"):
        held.clear()
        await page.keyboard.press("/")
        await expect_chosen(page, "Now")
        await page.keyboard.type("cal")
        await eventually(lambda: len(held) == 1)
        await page.keyboard.press("Enter")
        if way_out == "Escape":
            await page.keyboard.press("Escape")
        else:
            await page.keyboard.type(way_out)
            await expect(page.get_by_text("Nothing matches “calxyz”.")).to_be_visible()
            await page.keyboard.press("Enter")
            await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        await page.evaluate("fetch('/session', {headers: {'HX-Request': 'true'}}).then((answer) => answer.text())")
        assert page.url == here


async def test_a_session_that_ended_is_renewed_within_the_palette(people: People, system: WebSystem) -> None:
    alice = await people("alice")
    alice.expect_problem("answer: 401 GET .*/(search|session)")
    page = alice.page
    # Jobs of other tests start and end meanwhile: a page that follows them would ask for its own parts, too.
    await page.goto("/shortcuts")
    await expect(page.locator("body[data-live]")).to_have_count(0)
    await page.keyboard.press("/")
    await expect_chosen(page, "Now")
    await alice.context.clear_cookies()
    await page.keyboard.type("queue")
    again = page.get_by_role("dialog", name="Sign in again")
    await again.get_by_label("Token").fill(system.tokens["alice"])
    await again.get_by_role("button", name="Sign in").click()
    await expect_chosen(page, "Queue")
    await page.keyboard.press("Enter")
    await expect_page(page, "/queue$")


async def test_the_palette_returns_to_where_the_reader_was(people: People) -> None:
    page = (await people("alice")).page
    await page.goto("/")
    link = page.get_by_role("link", name="Queue")
    await link.focus()
    await page.keyboard.press("Control+k")
    await expect(field_of(page)).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await expect(link).to_be_focused()


async def test_an_administrator_finds_people_nodes_and_bookings(people: People, system: WebSystem) -> None:
    node = system.rest("root").get("/v1/nodes").json()["items"][0]["name"]
    start = (datetime.now(UTC) + timedelta(days=2)).replace(minute=0, second=0, microsecond=0).isoformat()
    booked = {"gpus": 1, "start": start, "duration": 3600, "title": "demo day"}
    system.rest("bob").post("/v1/bookings", json=booked).raise_for_status()
    page = (await people("root")).page
    await page.goto("/")
    for typed, name, address in (
        ("bob", "bob", r"/admin/users\?q=bob$"),
        (node, node, rf"/now\?node={node}$"),
        ("demo d", "demo day", r"/bookings/bkg-"),
        ("unkn", "Unknown pods", r"/admin/pods$"),
    ):
        await page.keyboard.press("/")
        await page.keyboard.type(typed)
        await expect_chosen(page, name)
        await page.keyboard.press("Enter")
        await expect_page(page, address)


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
async def test_the_button_is_enough(people: People, size: tuple[int, int]) -> None:
    alice = await people("alice", viewport={"width": size[0], "height": size[1]}, has_touch=size == PHONE)
    page = alice.page
    await page.goto("/")
    button = page.get_by_role("link", name="Find", exact=False).first
    box = await button.bounding_box()
    assert box is not None
    assert min(box["width"], box["height"]) >= 24
    await button.click()
    await field_of(page).fill("calen")
    option = page.get_by_role("option", name="Calendar")
    box = await eventually(option.bounding_box)  # while the list is made anew it is nowhere
    assert box["height"] >= 24
    await assert_accessible(page)
    await assert_fits(page)
    await option.click()
    await expect_page(page, "/calendar$")


async def test_keys_go_to_pages_and_say_which_there_are(people: People, screenshot: Screenshot) -> None:
    page = (await people("alice")).page
    await page.goto("/")
    for key, address in (("c", "/calendar"), ("q", "/queue"), ("j", "/jobs"), ("n", "/now"), ("b", "/bookings")):
        await page.keyboard.press("g")
        await page.keyboard.press(key)
        await expect_page(page, f"{address}$")
    await page.keyboard.press("?")
    sheet = page.get_by_role("dialog", name="Keyboard shortcuts")
    await expect(sheet).to_contain_text("Calendar")
    await assert_accessible(page)
    await screenshot(page, "shortcuts")
    await page.keyboard.press("g")
    await page.keyboard.press("q")
    await page.keyboard.press("/")
    await expect(field_of(page)).to_have_count(0)
    await page.keyboard.press("Escape")
    await expect(sheet).to_have_count(0)
    await expect_page(page, "/bookings$")
    await page.get_by_role("contentinfo").get_by_role("link", name="Keyboard shortcuts").click()
    await expect(sheet).to_be_visible()
    await assert_fits(page)


async def test_keys_do_nothing_while_somebody_types_or_holds_a_modifier(people: People) -> None:
    page = (await people("alice")).page
    await page.goto("/submit")
    field = page.get_by_label("Name", exact=True)
    await field.fill("")
    await field.press_sequentially("gq/?gj")
    await expect(field).to_have_value("gq/?gj")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await page.get_by_label("What to run").focus()
    await page.keyboard.type("/?gn")
    await page.locator("h1").click()
    await page.keyboard.press("g")
    for pressed in ("Alt+q", "Control+Shift+K", "Alt+/", "Q"):
        await page.keyboard.press(pressed)
    await page.keyboard.press("q")  # what `g` began is over
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await expect_page(page, "/submit$")
    await page.keyboard.press("Control+k")
    await expect(field_of(page)).to_be_focused()


async def test_single_keys_can_be_turned_off(people: People) -> None:
    page = (await people("alice")).page
    await page.goto("/")
    await page.keyboard.press("?")
    await page.get_by_label("Single-key shortcuts work in this browser").uncheck()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await page.reload()
    for key in ("/", "g", "q", "?"):
        await page.keyboard.press(key)
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await page.keyboard.press("Control+k")
    await expect(field_of(page)).to_be_focused()
    await page.goto("/shortcuts")
    await page.get_by_label("Single-key shortcuts work in this browser").check()
    await page.keyboard.press("g")
    await page.keyboard.press("q")
    await expect_page(page, "/queue$")


async def test_a_list_is_sorted_and_filtered_and_back_undoes_it(
    people: People, system: WebSystem, screenshot: Screenshot
) -> None:
    for name, gpus in (("sorted-b", 1), ("sorted-a", 2), ("other", 3)):
        system.submit("bob", "sleep", "300", name=name, gpus=gpus)
    page = (await people("bob")).page
    await page.goto("/jobs")
    names = page.locator("tbody a", has_text=re.compile("sorted|other"))
    await expect(names).to_have_text(["other", "sorted-a", "sorted-b"])
    await page.get_by_role("searchbox", name="Find").fill("sorted")
    await page.keyboard.press("Enter")
    await expect(names).to_have_text(["sorted-a", "sorted-b"])
    await page.get_by_role("columnheader", name="GPUs").get_by_role("link").focus()
    await page.keyboard.press("Enter")
    await expect(page.locator("th[aria-sort=descending]")).to_have_text("GPUs")
    await page.get_by_role("columnheader", name="GPUs").get_by_role("link").click()
    await expect(page.locator("th[aria-sort=ascending]")).to_have_text("GPUs")
    await expect(names).to_have_text(["sorted-b", "sorted-a"])
    await assert_accessible(page)
    await screenshot(page, "jobs-sorted")
    await page.go_back()
    await page.go_back()
    await expect(names).to_have_text(["sorted-a", "sorted-b"])
    await page.go_back()
    await expect(names).to_have_text(["other", "sorted-a", "sorted-b"])


async def test_a_phone_shows_the_first_rows_and_the_rest_when_asked(people: People, system: WebSystem) -> None:
    for number in range(25):
        system.submit("alice", "sleep", "300", name=f"row {number}", gpus=4)
    width, height = PHONE
    page = (await people("alice", viewport={"width": width, "height": height}, has_touch=True)).page
    await page.goto("/queue")
    rows = page.locator("tbody tr")
    shown = page.locator("tbody tr:visible")
    count = await rows.count()
    assert count > 20
    await expect(shown).to_have_count(20)
    await assert_accessible(page)
    await page.get_by_role("link", name=f"Show all {count} on this page").tap()
    await expect(shown).to_have_count(count)
    await assert_fits(page)
    await page.set_viewport_size({"width": DESKTOP[0], "height": DESKTOP[1]})
    await page.goto("/queue")
    await expect(shown).to_have_count(count)

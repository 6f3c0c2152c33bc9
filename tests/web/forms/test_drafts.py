"""Nothing typed is lost: a session that ended, another user, a refusal, a page that was left."""

import asyncio
import re

from playwright.async_api import Locator, Page, Route, expect

from tests.programs.ports import own_port
from tests.waiting import eventually
from tests.web.browser import assert_accessible, sign_in
from tests.web.conftest import People, Screenshot
from tests.web.web_system import WebSystem

SETTINGS = {"GPU_DEV_LISTEN": f"127.0.0.1:{own_port()}"}


async def fill_job(page: Page, name: str) -> None:
    """A job that was typed, and its verdict."""
    await page.goto("/submit")
    await page.get_by_label("What to run").fill("true")
    await page.get_by_label("For at most").fill("20m")
    await page.get_by_label("Name", exact=True).fill(name)
    await expect(page.locator("#verdict")).to_contain_text(f"--name {name}")


def end_sessions(system: WebSystem, who: str) -> None:
    """Sign somebody's browsers out, without a page of theirs."""
    rest = system.rest(who)
    for token in rest.get("/v1/tokens").raise_for_status().json()["items"]:
        if token["session"] and token["revoked_at"] is None:
            rest.delete(f"/v1/tokens/{token['id']}").raise_for_status()


def question(page: Page) -> Locator:
    """The dialog that asks to sign in."""
    return page.get_by_role("dialog", name="Sign in again")


async def kept(page: Page) -> str:
    """What this tab keeps."""
    return str(await page.evaluate("sessionStorage.getItem('gpu-dev-drafts') ?? '{}'"))


async def answer_is_noted(page: Page) -> bool:
    """Whether the script of the page that answers has run, which may be after the page is seen."""
    return await page.evaluate("sessionStorage.getItem('gpu-dev-sent')") is None


async def nothing_kept(page: Page) -> bool:
    """Asked again and again by the test: the page's policy allows no wait_for_function."""
    return await kept(page) == "{}"


async def test_a_draft_is_kept_where_a_browser_does_not_say_how_it_came_to_a_page(people: People) -> None:
    page = (await people("alice")).page
    await page.add_init_script("performance.getEntriesByType = () => []")
    await fill_job(page, "kept")
    await eventually(lambda: holds(page, "kept"))
    await page.goto("/submit")
    await expect(page.get_by_label("Name", exact=True)).to_have_value("kept")


async def holds(page: Page, word: str) -> bool:
    return word in await kept(page)


async def test_what_is_typed_before_the_scripts_have_come_is_kept_and_has_a_verdict(people: People) -> None:
    page = (await people("alice")).page
    typed = asyncio.Event()

    async def late(route: Route) -> None:
        await typed.wait()
        await route.continue_()

    await page.route(re.compile(r"/site\."), late)
    for name in ("quick", "quicker"):  # the second time there is a draft of the first
        typed.clear()
        await page.goto("/submit", wait_until="commit")
        await page.get_by_label("Name", exact=True).fill(name)
        typed.set()
        await expect(page.locator("#verdict")).to_contain_text(f"--name {name}")
        await page.get_by_label("What to run").fill("true")
    await page.reload()
    await expect(page.get_by_label("What to run")).to_have_value("true")
    await expect(page.get_by_label("Name", exact=True)).to_have_value("quicker")


async def test_a_form_is_sent_after_signing_in_where_it_was_typed(
    people: People, system: WebSystem, screenshot: Screenshot
) -> None:
    alice = await people("alice")
    page = alice.page
    await fill_job(page, "typed-before")
    end_sessions(system, "alice")
    alice.expect_problem("answer: 401 GET .*/session")
    alice.expect_problem("answer: 401 POST .*/sign-in")
    await page.get_by_role("button", name="Submit").click()
    await expect(question(page)).to_contain_text("You are signed out. What you typed is kept.")
    await expect(question(page).get_by_label("Token")).to_be_focused()
    await assert_accessible(page)
    await screenshot(page, "sign-in-again")
    await question(page).get_by_label("Token").fill("gpudev_nobodys")
    await question(page).get_by_role("button", name="Sign in").click()
    await expect(question(page).get_by_role("alert")).to_contain_text("not valid")
    await question(page).get_by_label("Token").fill(system.tokens["alice"])
    await question(page).get_by_role("button", name="Sign in").click()
    await expect(page).to_have_url(re.compile(r"/jobs/job-"))
    await expect(page.get_by_role("heading", name="typed-before")).to_be_visible()
    # The page of the job forgets it when its script runs, which may be after the page is seen.
    await eventually(lambda: nothing_kept(page))


async def test_a_verdict_that_needs_a_session_asks_for_one_and_comes_then(people: People, system: WebSystem) -> None:
    alice = await people("alice")
    page = alice.page
    await fill_job(page, "first-name")
    end_sessions(system, "alice")
    alice.expect_problem("answer: 401 (GET .*/session|POST .*/submit/verdict)")
    await page.get_by_label("Name", exact=True).fill("second-name")
    # Signed in in another tab: this one goes on by itself.
    await expect(question(page)).to_be_visible()
    second = await alice.context.new_page()
    await sign_in(second, system.tokens["alice"])
    await expect(question(page)).to_have_count(0)
    await expect(page.locator("#verdict")).to_contain_text("--name second-name")


async def test_a_form_of_one_user_is_not_sent_by_another(people: People, system: WebSystem) -> None:
    alice = await people("alice")
    page = alice.page
    await fill_job(page, "of-alice")
    await sign_in(await alice.context.new_page(), system.tokens["bob"])
    await expect(question(page)).to_contain_text("signed in as bob now, but this page belongs to alice")
    await question(page).get_by_role("button", name="Not now").click()
    await page.get_by_role("button", name="Submit").click()
    await question(page).get_by_label("Token").fill(system.tokens["alice"])
    await question(page).get_by_role("button", name="Sign in").click()
    await expect(page).to_have_url(re.compile(r"/jobs/job-"))
    job = system.job(page.url.rsplit("/", 1)[1])
    assert (job["user"], job["name"]) == ("alice", "of-alice")


async def test_what_was_typed_is_there_after_leaving_and_after_a_refusal(people: People) -> None:
    alice = await people("alice")
    page = alice.page
    await fill_job(page, "half-done")
    await page.get_by_text(
        "Image, folder, CPUs, memory, variables, disks, secrets, other jobs, priority, retries"
    ).click()
    await page.get_by_label("Working folder").fill("/data")
    await page.get_by_label("Variables").fill("WANDB_API_KEY=secret")
    await page.get_by_role("link", name="Queue").click()
    assert "secret" not in await kept(page)
    await page.get_by_role("link", name="Submit", exact=True).click()
    await expect(page.get_by_label("Name", exact=True)).to_have_value("half-done")
    await expect(page.get_by_label("Working folder")).to_be_visible()
    await expect(page.get_by_label("Variables")).to_have_value("")
    await expect(
        page.get_by_role("status").filter(has_text="is filled in again, but not Variables: secrets")
    ).to_be_visible()
    await expect(page.locator("#verdict")).to_contain_text("--name half-done")

    alice.expect_problem("answer: 422 POST .*/submit")
    await page.get_by_label("For at most").fill("soon")
    await page.get_by_role("button", name="Submit").click()
    await expect(page.get_by_label("For at most")).to_have_attribute("aria-invalid", "true")
    # Only when its script has run is it a refusal for this tab.
    await eventually(lambda: answer_is_noted(page))
    await page.get_by_role("link", name="Queue").click()
    await page.get_by_role("link", name="Submit", exact=True).click()
    await expect(page.get_by_label("For at most")).to_have_value("soon")
    await page.get_by_label("For at most").fill("20m")
    await page.get_by_role("button", name="Submit").click()
    await expect(page).to_have_url(re.compile(r"/jobs/job-"))
    await eventually(lambda: answer_is_noted(page))
    await page.goto("/submit")
    await expect(page.get_by_label("Name", exact=True)).to_have_value("")


async def test_nothing_is_called_filled_in_where_only_a_secret_was_typed(people: People) -> None:
    page = (await people("alice")).page
    await page.goto("/account")
    await page.get_by_label("Public key").fill("ssh-ed25519 AAAA")
    await page.goto("/queue")
    await page.goto("/account")
    await expect(page.get_by_label("Public key")).to_have_value("")
    notice = page.locator(".notice.draft")
    await expect(notice).to_contain_text("as Public key is not filled in again: secrets are not kept here.")
    await page.get_by_role("button", name="Clear it").click()
    await expect(notice).to_have_count(0)


async def test_a_job_that_was_checked_and_loaded_again_leaves_no_draft(people: People) -> None:
    page = (await people("alice")).page
    await fill_job(page, "checked")
    async with page.expect_navigation():
        await page.get_by_role("button", name="Check").click()
    await eventually(lambda: answer_is_noted(page))
    async with page.expect_navigation():
        await page.evaluate("location.reload()")
    await expect(page.get_by_label("Name", exact=True)).to_have_value("checked")
    await page.get_by_role("button", name="Submit").click()
    await expect(page).to_have_url(re.compile(r"/jobs/job-"))
    await eventually(lambda: answer_is_noted(page))
    await page.goto("/submit")
    await expect(page.get_by_label("What to run")).to_have_value("")
    await expect(page.get_by_label("Name", exact=True)).to_have_value("")


async def test_signing_out_leaves_nothing_in_this_tab_nor_in_another(people: People) -> None:
    alice = await people("alice")
    page = alice.page
    second = await alice.context.new_page()
    await second.goto("/usage")
    await fill_job(page, "nobodys-business")
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_text("You are signed out.")).to_be_visible()
    assert "nobodys-business" not in await page.evaluate("JSON.stringify(sessionStorage)")
    await expect(second).to_have_url(re.compile(r"/sign-in\?next="))


async def test_signing_out_needs_no_session(people: People, system: WebSystem) -> None:
    alice = await people("alice")
    page = alice.page
    await fill_job(page, "nobodys-business")
    end_sessions(system, "alice")
    await page.get_by_role("button", name="Sign out").click()
    await expect(page).to_have_url(re.compile(r"/sign-in"))
    assert "nobodys-business" not in await page.evaluate("JSON.stringify(sessionStorage)")


async def test_pages_say_how_old_they_are_while_the_server_is_away_and_go_on_when_it_is_back(
    people: People, system: WebSystem, screenshot: Screenshot
) -> None:
    alice = await people("alice")
    alice.expect_problem(r"failed: \w+ .*/(live|session)")
    now, form = alice.page, await alice.context.new_page()
    await now.goto("/now")
    tiles = now.locator(".tiles").first
    await expect(tiles).to_have_css("filter", "none")
    await fill_job(form, "patient")
    with system.away():
        await expect(now.locator("#live-state")).to_have_text(re.compile(r"As of \d\d:\d\d:\d\d\. Reconnecting…"))
        await expect(tiles).to_have_css("filter", "grayscale(1)")
        await assert_accessible(now)
        await screenshot(now, "now-stale")
        await form.get_by_role("button", name="Submit").click()
        await expect(form.get_by_role("dialog", name="The server can’t be reached")).to_be_visible()
        await assert_accessible(form)
        await screenshot(form, "server-away")
    await expect(form.get_by_role("heading", name="patient")).to_be_visible()
    await expect(now.locator("#live-state")).to_be_empty()
    await expect(tiles).to_have_css("filter", "none")

"""What would start sooner, beside the form of a job while it is typed."""

from playwright.async_api import expect

from tests.web.browser import assert_accessible
from tests.web.conftest import People, Screenshot
from tests.web.jobs.test_why_waiting import waiting
from tests.web.web_system import WebSystem

__all__ = ["waiting"]


async def test_a_click_puts_a_sooner_request_into_the_form(
    people: People, system: WebSystem, waiting: str, screenshot: Screenshot
) -> None:
    alice = await people("alice")
    page, verdict = alice.page, alice.page.locator("#verdict")
    await page.goto("/submit")
    await expect(verdict).to_contain_text("Starts now")
    await page.get_by_label("What to run").fill("python train.py")
    await expect(verdict).not_to_contain_text("Would start sooner")
    await page.get_by_label("For at most").fill("2h")
    await expect(verdict).to_contain_text("Place in the queue for any type: 1.")
    await expect(verdict).to_contain_text("It may start sooner; its likely start is not known yet.")
    await expect(verdict).to_contain_text("Would start sooner")
    await expect(verdict.get_by_role("listitem").filter(has_text="For 1 h")).to_contain_text("now")
    await assert_accessible(page)
    await screenshot(page, "submit-sooner")
    await verdict.get_by_role("button", name="For 1 h").click()
    await expect(page.get_by_label("For at most")).to_have_value("1h25m")
    await expect(page.get_by_label("What to run")).to_have_value("python train.py")
    await expect(verdict).to_contain_text("Starts now")
    assert len(system.rest("alice").get("/v1/queue").json()["items"]) == 1, "nothing was submitted"


async def test_earlier_jobs_are_shown_also_where_no_verdict_comes(people: People, system: WebSystem) -> None:
    system.submit("alice", "true", gpus=1, duration=3600, name="before")
    alice = await people("alice")
    alice.expect_problem("answer: 503 POST .*/submit/verdict")
    await alice.page.route("**/submit/verdict", lambda route: route.fulfill(status=503, body="<p>Try again.</p>"))
    await alice.page.goto("/submit")
    await expect(alice.page.get_by_text("Try again.")).to_be_visible()
    await expect(alice.page.get_by_text("Looking when it would start")).to_be_hidden()
    await expect(alice.page.get_by_role("link", name="before")).to_be_visible()


async def test_earlier_jobs_are_shown_where_scripts_run_no_more(people: People, system: WebSystem) -> None:
    """Scripts ran in this browser once, and told its time zone."""
    system.submit("alice", "true", gpus=1, duration=3600, name="before")
    alice = await people("alice", java_script_enabled=False)
    await alice.context.add_cookies([{"name": "gpu_dev_browser_zone", "value": "UTC", "url": alice.url}])
    await alice.page.goto("/submit")
    await expect(alice.page.get_by_role("link", name="before")).to_be_visible()
    await expect(alice.page.get_by_text("Looking when it would start")).to_be_hidden()

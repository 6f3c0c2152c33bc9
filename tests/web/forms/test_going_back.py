"""Going back in the browser to a form that was sent: what was typed is there, and is sent again only on purpose."""

import re
from datetime import UTC, datetime, timedelta

from playwright.async_api import Page, expect

from tests.web.conftest import People
from tests.web.web_system import WebSystem

JOB = re.compile(r"/jobs/job-\w+$")
SENT = re.compile("What you sent at .* is filled in again. Sending it makes another one.")


async def submit(page: Page) -> str:
    """Submit the form; the address of the job."""
    await page.get_by_role("button", name="Submit", exact=True).click()
    await expect(page).to_have_url(JOB)
    return page.url


async def test_back_from_a_job_leads_to_its_form_as_it_was_filled_in(people: People, system: WebSystem) -> None:
    alice = await people("alice")
    page = alice.page
    name, notice = page.get_by_label("Name", exact=True), page.get_by_text(SENT)
    await page.goto("/queue")
    await page.goto("/submit")
    await page.get_by_label("What to run").fill("true")
    await name.fill("first")
    first = await submit(page)
    await page.go_back()
    await expect(page).to_have_url(re.compile("/submit$"))
    await expect(notice).to_be_visible()
    await expect(name).to_have_value("first")
    await expect(page.get_by_label("What to run")).to_have_value("true")
    await page.go_forward()
    await expect(page).to_have_url(first)
    await page.go_back()
    await name.fill("second")
    assert await submit(page) != first
    # A refusal lies between: it can't be gone back to.
    await page.go_back()
    await page.get_by_label("For at most").fill("bogus")
    await page.get_by_role("button", name="Submit", exact=True).click()
    alice.expect_problem("answer: 4.. POST .*/submit$")
    await expect(page.locator("body[data-refused]")).to_be_attached()
    await page.get_by_label("For at most").fill("20m")
    await submit(page)
    await page.go_back()
    await expect(page).to_have_url(re.compile("/submit$"))
    await expect(name).to_have_value("second")
    await expect(page.get_by_label("For at most")).to_have_value("20m")
    # Opened anew the form is empty, and loading it again changes nothing.
    await page.goto("/submit")
    await expect(name).to_have_value("")
    await page.reload()
    await expect(name).to_have_value("")
    await expect(notice).to_have_count(0)
    jobs = system.rest("alice").get("/v1/jobs").raise_for_status().json()["items"]
    assert sorted(job["name"] for job in jobs) == ["first", "second", "second"]


async def test_back_from_a_checked_job_leads_to_its_form_and_sends_nothing_again(people: People) -> None:
    page = (await people("alice")).page
    name = page.get_by_label("Name", exact=True)
    await page.goto("/submit")
    await page.get_by_label("What to run").fill("true")
    await name.fill("checked")
    await page.get_by_role("button", name="Check").click()
    await expect(page).to_have_url(re.compile("/submit$"))
    await expect(page.locator("#verdict")).to_contain_text("--name checked")
    await submit(page)
    await page.go_back()
    await expect(page).to_have_url(re.compile("/submit$"))
    await expect(page.get_by_text(SENT)).to_be_visible()
    await expect(name).to_have_value("checked")


async def test_back_to_a_refused_job_leads_to_its_form_and_sends_nothing_again(people: People) -> None:
    alice = await people("alice")
    page = alice.page
    await page.goto("/submit")
    await page.get_by_label("What to run").fill("true")
    await page.get_by_label("For at most").fill("bogus")
    await page.get_by_role("button", name="Submit", exact=True).click()
    alice.expect_problem("answer: 422 POST .*/submit$")
    await expect(page.locator("body[data-refused]")).to_be_attached()
    await page.get_by_role("link", name="Queue").click()
    await page.go_back()
    await expect(page).to_have_url(re.compile("/submit$"))
    await expect(page.get_by_label("For at most")).to_have_value("bogus")
    await expect(page.locator("body[data-refused]")).to_have_count(0)


async def test_back_from_a_booking_leads_to_a_calendar_that_has_what_was_typed(
    people: People, system: WebSystem
) -> None:
    page = (await people("alice")).page
    form = page.locator("#book-form")
    day = f"{datetime.now(UTC) + timedelta(days=5):%Y-%m-%d}"
    await page.goto("/calendar")
    await page.get_by_role("link", name="Book a slot").click()
    for name, value in (("start", f"{day}T10:00"), ("end", f"{day}T12:00"), ("title", "demo")):
        await form.locator(f"[name={name}]").fill(value)
    await form.get_by_role("button", name="Book", exact=True).click()
    await expect(page).to_have_url(re.compile("/bookings/bkg-"))
    await page.go_back()
    await expect(form.locator("[name=title]")).to_have_value("demo")
    await expect(page.get_by_text(SENT)).to_be_attached()
    [booking] = system.rest("alice").get("/v1/bookings").raise_for_status().json()["items"]
    system.rest("alice").delete(f"/v1/bookings/{booking['id']}").raise_for_status()

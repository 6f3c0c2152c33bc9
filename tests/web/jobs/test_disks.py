"""Disks in a browser: made, used, deleted after a question in a dialog, restored."""

import re
from collections.abc import Iterator

import pytest
from playwright.async_api import expect

from tests.waiting import eventually_sync
from tests.web.browser import assert_accessible, assert_fits
from tests.web.conftest import People, Screenshot
from tests.web.web_system import WebSystem

SETTINGS = {"GPU_DEV_LOCAL_GPUS": "titan=h100:2"}


@pytest.fixture(autouse=True)
def _free_gpus(system: WebSystem) -> Iterator[None]:
    yield
    system.end_all_jobs()


async def test_a_disk_from_its_making_to_its_restoring(
    people: People, system: WebSystem, screenshot: Screenshot
) -> None:
    page = (await people("alice", viewport={"width": 1440, "height": 900})).page
    await page.goto("/account")
    await page.get_by_role("link", name="your disks").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Your disks")
    await page.get_by_label("Name").fill("data")
    await page.get_by_label("Size").fill("2Gi")
    await page.get_by_role("button", name="Create a disk").click()
    row = page.get_by_role("row", name=re.compile("^data "))
    await expect(row.get_by_text("ready")).to_be_visible()  # without loading the page again
    await page.get_by_label("Name").fill("models-of-the-spring-campaign-and-what-was-trained-with-them")
    await page.get_by_role("button", name="Create a disk").click()
    await expect(page.get_by_text("is created")).to_be_visible()

    job = system.submit(
        "alice", "sh", "-c", "echo kept > $GPU_DEV_DISK_FOLDER/disks/data/f; sleep 3000", disks=[{"name": "data"}]
    )
    eventually_sync(lambda: system.job(job)["status"] == "running")
    await page.goto("/disks")
    await expect(row.get_by_role("link", name=job)).to_be_visible()
    await expect(row.get_by_role("link", name="Delete…")).to_have_count(0)
    await screenshot(page, "disks")
    await assert_accessible(page)
    await assert_fits(page)
    await row.get_by_role("link", name="data", exact=True).click()
    await page.wait_for_url("**/disks/data*")
    await screenshot(page, "disk")
    await assert_accessible(page)
    await assert_fits(page)
    await page.get_by_label("Size").fill("3Gi")
    await page.get_by_role("button", name="Change it").click()
    await expect(page.get_by_text("The disk data has 3 GiB.")).to_be_visible()

    system.end_all_jobs()
    await page.goto("/disks")
    await row.get_by_role("link", name="Delete…").click()
    question = page.get_by_role("dialog")
    await expect(question).to_contain_text("can be restored until")
    await question.get_by_role("button", name="Delete it").click()
    deleted = page.get_by_role("region", name="Deleted disks")
    await expect(deleted.get_by_role("row", name=re.compile("^data deleted"))).to_be_visible()
    await screenshot(page, "deleted-disks")
    await assert_accessible(page)
    await assert_fits(page)
    await deleted.get_by_role("button", name="Restore").click()
    await expect(row.get_by_text("ready")).to_be_visible()
    await expect(page.get_by_role("region", name="Deleted disks")).to_have_count(0)


async def test_the_form_of_a_job_takes_disks(people: People, system: WebSystem, screenshot: Screenshot) -> None:
    system.rest("alice").post("/v1/disks", json={"name": "sets", "size": "1Gi"}).raise_for_status()
    page = (await people("alice", viewport={"width": 1440, "height": 900})).page
    await page.goto("/disks")
    await page.get_by_role("row", name=re.compile("^sets ")).get_by_role("link", name="sets", exact=True).click()
    await page.get_by_role("link", name="Submit a job with it").click()
    disks = page.get_by_label("Disks")
    await expect(disks).to_have_value("sets")
    await disks.fill("sets:ro")
    await page.get_by_label("What to run").fill("true")
    await expect(page.locator("#verdict")).to_contain_text("--disk sets:ro")
    await screenshot(page, "submit-with-disks")
    await assert_accessible(page)
    await assert_fits(page)
    await page.get_by_role("button", name="Submit").click()
    await expect(page).to_have_url(re.compile(r"/jobs/job-"))


async def test_the_palette_leads_to_disks(people: People) -> None:
    page = (await people("alice")).page
    await page.goto("/now")
    await page.keyboard.press("/")
    await page.get_by_role("combobox", name="Name or id").fill("disks")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile(r"/disks$"))

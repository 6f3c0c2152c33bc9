"""The page that simulates the queue, in a browser: its form, and its curves, for everybody's eyes and hands."""

import re

from playwright.async_api import expect

from tests.waiting import eventually_sync
from tests.web.browser import assert_accessible, assert_fits
from tests.web.conftest import People, Screenshot
from tests.web.web_system import WebSystem

SETTINGS = {"GPU_DEV_LOCAL_GPUS": "titan=h100:4"}


async def test_a_past_is_simulated_with_more_nodes(people: People, system: WebSystem, screenshot: Screenshot) -> None:
    for who in ("alice", "bob"):
        job = system.submit(who, "true", gpu_type="h100")
        eventually_sync(lambda job=job: system.job(job)["status"] == "succeeded")  # type: ignore[misc]
    root = await people("root")
    page = root.page
    await page.goto("/simulate")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Simulate the queue")
    await assert_accessible(page)
    await assert_fits(page)
    await page.get_by_label("Days of past jobs").fill("7")
    await page.get_by_label("More nodes").fill("2")
    await page.get_by_role("button", name="Simulate").click()
    await expect(page).to_have_url(re.compile("days=7&more=2&type=h100"))
    await expect(page.get_by_role("img", name="The part of the jobs that waited no longer")).to_be_visible()
    await expect(page.get_by_role("region", name="Mean waits of users")).to_contain_text("bob")
    await expect(page.get_by_label("More nodes")).to_have_value("2")
    await assert_accessible(page)
    await assert_fits(page)
    await screenshot(page, "simulate")
    await page.get_by_label("Days of past jobs").fill("999")
    root.expect_problem("^answer: 422 GET .*/simulate")
    await page.evaluate("document.querySelector('main form').noValidate = true")
    await page.get_by_role("button", name="Simulate").click()
    await expect(page.get_by_text("400 days")).to_be_visible()
    await assert_accessible(page)

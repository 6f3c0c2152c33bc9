"""Administrators at their pages: what they do is seen at others' browsers, and they are told before whom it affects."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.async_api import Browser, expect

from tests.waiting import eventually
from tests.web.browser import assert_accessible, open_person, sign_in
from tests.web.conftest import People, Screenshot
from tests.web.web_system import WebSystem

SETTINGS = {"GPU_DEV_LOCAL_GPUS": "titan=h100:4;rhea=a100:2"}
PAGES = ("users", "tokens", "projects", "policy", "maintenance", "nodes", "dead-letters", "pods", "audit")


def tomorrow(hours: int = 0) -> str:
    """A whole hour of tomorrow."""
    day = datetime.now(UTC).replace(hour=9, minute=0, second=0, microsecond=0) + timedelta(days=1)
    return (day + timedelta(hours=hours)).isoformat()


@pytest.fixture
def booking(system: WebSystem) -> Iterator[dict[str, Any]]:
    """All of titan, tomorrow: alice's until the test is over."""
    body = {"gpus": 4, "gpu_type": "h100", "start": tomorrow(), "duration": "PT4H", "title": "evaluation"}
    made: dict[str, Any] = system.rest("alice").post("/v1/bookings", json=body).raise_for_status().json()
    yield made
    system.rest("alice").delete(f"/v1/bookings/{made['id']}")


async def test_a_user_comes_in_with_a_token_and_goes_when_disabled(
    people: People, browser: Browser, system: WebSystem
) -> None:
    root = await people("root")
    page = root.page
    await page.goto("/admin/users")
    await page.get_by_label("Name").fill("carol")
    await page.get_by_role("button", name="Add the user").click()
    await expect(page.get_by_role("heading", name="Tokens of carol")).to_be_visible()
    await page.get_by_label("Name", exact=True).fill("laptop")
    await page.get_by_role("button", name="Create a token").click()
    secret = (await page.locator("#new-token").inner_text()).strip()
    assert secret not in page.url
    await page.goto("/admin/tokens?user=carol")
    await expect(page.get_by_role("cell", name="laptop")).to_be_visible()
    assert secret not in await page.content()

    async with open_person(browser, system.url) as carol:
        await sign_in(carol.page, secret)
        await carol.page.goto("/jobs")
        await expect(carol.page.get_by_role("link", name="carol")).to_be_visible()
        await page.goto("/admin/users")
        await page.locator("#user-carol").get_by_role("link", name="Disable…").click()
        await expect(page.get_by_role("dialog", name="Disable carol?")).to_contain_text("stop working at once")
        await page.get_by_role("button", name="Disable carol").click()
        await expect(page.locator("#user-carol")).to_contain_text("disabled")
        # Nothing of what is open there works any more: neither the page anew, nor what it asks for by itself.
        carol.expect_problem("answer: 401|^answer: 401 POST .*/sign-in")
        await carol.page.goto("/jobs")
        await expect(carol.page).to_have_url(re.compile(r"/sign-in\?next="))
        await carol.page.get_by_label("Token").fill(secret)
        await carol.page.get_by_role("button", name="Sign in").click()
        await expect(carol.page.get_by_role("alert").filter(has_text="not valid")).to_be_visible()


async def test_whom_a_rule_would_affect_is_seen_before_it_holds(
    people: People, system: WebSystem, booking: dict[str, Any], screenshot: Screenshot
) -> None:
    root = await people("root")
    page = root.page
    await page.goto("/admin/policy")
    await page.get_by_label("Rules for").select_option("user")
    await page.get_by_label("Name").fill("alice")
    await page.get_by_role("button", name="Write rules…").click()
    await expect(page.get_by_role("heading", name="Rules for user alice")).to_be_visible()
    await assert_accessible(page)
    await screenshot(page, "admin-policy-form")
    await page.get_by_label("GPUs at once").first.fill("2")
    await page.get_by_role("button", name="Show what it affects").click()
    verdict = page.locator("#preview")
    await expect(verdict).to_contain_text("not set")
    await expect(verdict.get_by_role("link", name=booking["id"])).to_be_visible()
    assert system.rest("root").get("/v1/policy").json()["items"] == []
    await assert_accessible(page)
    await screenshot(page, "admin-policy-preview")
    await verdict.get_by_role("button", name="Apply").click()
    await expect(page.get_by_text("apply from now on")).to_be_visible()
    await expect(page.get_by_role("row", name=re.compile("user alice"))).to_contain_text("GPUs at once: 2")
    await assert_accessible(page)
    await screenshot(page, "admin-policy")
    alice = await people("alice")
    await alice.page.goto("/submit")
    await alice.page.get_by_label("GPUs on each node").fill("3")
    await expect(alice.page.locator("#verdict")).to_contain_text("2 GPUs")
    await page.get_by_role("link", name="Delete the rules for user alice").click()
    await page.get_by_role("button", name="Delete them").click()
    await expect(page.get_by_text("everybody may use all GPUs")).to_be_visible()


async def test_a_projects_members_are_seen_as_they_change(people: People, screenshot: Screenshot) -> None:
    root = await people("root")
    page = root.page
    await page.goto("/admin/projects")
    await page.get_by_label("Name").fill("vision")
    await page.get_by_label("Title").fill("What machines see")
    await page.get_by_role("button", name="Create the project").click()
    await expect(page.get_by_role("heading", name="Project vision")).to_be_visible()
    second = await root.context.new_page()
    await second.goto("/admin/projects")
    for user in ("alice", "bob"):
        await page.get_by_label("User").fill(user)
        await page.get_by_role("button", name="Add").click()
        await expect(page.locator(f"#member-{user}")).to_be_visible()
    await expect(second.locator("#project-vision")).to_contain_text("alice, bob")  # without a reload
    await assert_accessible(page)
    await screenshot(page, "admin-project")
    await page.get_by_role("link", name="Remove bob…").click()
    await page.get_by_role("button", name="Remove bob").click()
    await expect(page.locator("#member-bob")).to_have_count(0)


async def test_maintenance_is_planned_with_a_look_at_whom_it_affects(
    people: People, system: WebSystem, booking: dict[str, Any], screenshot: Screenshot
) -> None:
    root = await people("root")
    page = root.page
    await page.goto("/admin/maintenance")
    await page.get_by_label("Nodes").fill("titan")
    await page.get_by_label("From").fill(tomorrow(1)[:16])
    await page.get_by_label("For").fill("2h")
    await page.get_by_label("Why").fill("new fans")
    await page.get_by_role("button", name="Show what it affects").click()
    affected = page.get_by_role("region", name="Affected jobs and bookings")
    await expect(affected.get_by_role("row", name=re.compile("alice"))).to_contain_text(booking["id"])
    await expect(page.get_by_text("No window was ever planned")).to_be_visible()
    await assert_accessible(page)
    await screenshot(page, "admin-maintenance-preview")
    await page.get_by_role("button", name="Plan it").click()
    await expect(page.get_by_text("Planned. 1 job or booking")).to_be_visible()
    await page.get_by_role("link", name="Cancel…").click()
    await expect(page.get_by_role("dialog")).to_contain_text("4 GPUs")
    await page.get_by_role("button", name="Cancel the window").click()
    await expect(page.get_by_text("The window is over")).to_be_visible()
    window = system.rest("root").get("/v1/maintenance").json()["items"][0]
    assert window["finished_at"] is not None


async def test_every_page_can_be_read_by_everybody(people: People, system: WebSystem, screenshot: Screenshot) -> None:
    job = system.submit("alice", "true", name="of-note")
    await eventually(lambda: system.job(job)["status"] == "succeeded")
    root = await people("root")
    for name in ("admin", *(f"admin/{page}" for page in PAGES), "usage", "account"):
        await root.page.goto(f"/{name}")
        await expect(root.page.get_by_role("heading", level=1)).to_be_visible()
        await assert_accessible(root.page)
        await screenshot(root.page, name.replace("/", "-"))
    root.expect_problem("answer: 404 GET .*/admin/projects/none")
    await root.page.goto("/admin/projects/none")
    await expect(root.page.get_by_text("no project")).to_be_visible()

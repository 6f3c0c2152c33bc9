"""The page of a booking: what is said beside its form keeps up with the booking, and what is typed stays."""

from datetime import timedelta

from playwright.async_api import expect

from tests.web.calendar.test_calendar import booked, day
from tests.web.conftest import People
from tests.web.web_system import WebSystem

SETTINGS = {"GPU_DEV_LOCAL_GPUS": "rhea=a100:1"}


async def test_a_page_that_is_open_keeps_up_from_the_waitlist_to_the_end(people: People, system: WebSystem) -> None:
    start = day(3) + timedelta(hours=6)
    other = booked(system, "bob", start, 4)
    body = {"gpus": 1, "start": start.isoformat(), "duration": 4 * 3600, "wait": True, "title": "patient"}
    waiting = system.rest("alice").post("/v1/bookings", json=body).raise_for_status().json()
    page = (await people("alice")).page
    await page.goto(f"/bookings/{waiting['id']}")
    change, cancel = page.get_by_role("region", name="Change it"), page.get_by_role("region", name="Cancel it")
    await expect(cancel).to_contain_text("It leaves the waitlist at once.")
    title = change.get_by_label("Title")
    await title.fill("patient no more")

    system.rest("bob").delete(f"/v1/bookings/{other['id']}").raise_for_status()
    await expect(page.get_by_role("button", name="Accept")).to_be_visible()
    await expect(change).to_contain_text("Accept the offer first: until then only its title can change.")
    await expect(cancel).to_contain_text("Its GPUs go to others at once.")
    await expect(title).to_have_value("patient no more")

    offered = system.rest("alice").get(f"/v1/bookings/{waiting['id']}")
    accept = {"If-Match": offered.headers["ETag"]}
    system.rest("alice").post(f"/v1/bookings/{waiting['id']}/accept", headers=accept).raise_for_status()
    await expect(page.get_by_role("link", name="Submit a job into it")).to_be_visible()
    await expect(change).not_to_contain_text("Accept the offer first")
    await expect(cancel).to_contain_text("Its GPUs are released at once.")
    await expect(title).to_have_value("patient no more")

    system.rest("alice").delete(f"/v1/bookings/{waiting['id']}").raise_for_status()
    await expect(change).to_be_hidden()
    await expect(cancel).to_be_hidden()
    await expect(page.get_by_role("link", name="Submit a job into it")).to_have_count(0)

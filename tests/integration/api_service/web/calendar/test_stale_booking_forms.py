"""A booking's form that was filled in before the booking changed: it carries on, or says what is different now."""

import httpx
import pytest

from tests.integration.api_service.bookings.calendars import asked, at, booked, said
from tests.integration.api_service.web.browsing import words
from tests.integration.api_service.web.calendar.calendar_pages import field
from tests.integration.api_service.web.conftest import SignedIn

TYPED = ("start", "end", "node", "title")


def form_of(page: str, **typed: str) -> dict[str, str]:
    """The whole form as the page has it, with what a user typed."""
    form = page.partition("Change it</h2>")[2]
    names = ("etag", "zone", *(f"was_{name}" for name in TYPED), *TYPED)
    return {name: field(form, name) for name in names} | typed


@pytest.mark.usefixtures("lab")
async def test_an_offer_that_came_meanwhile_does_not_stop_a_new_title(
    browsing: SignedIn, alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    theirs = await booked(bob, at(3), gpus=4, gpu_type="h100")
    made = (await alice.post("/v1/bookings", json=asked(at(3), gpus=1, gpu_type="h100", wait=True))).json()
    browser, path = await browsing("alice"), f"/bookings/{made['id']}"
    form = form_of(await browser.get(path), title="typed")
    await bob.delete(f"/v1/bookings/{theirs['id']}")
    assert (await browser.send(path, **form)).status_code == 303
    found = (await alice.get(f"/v1{path}")).json()
    assert (found["status"], found["title"]) == ("offered", "typed")
    # Another time is refused with what to do first, and stays in the form.
    later = f"{at(9):%Y-%m-%dT%H:%M}"
    done = await browser.send(path, **form_of(await browser.get(path), end=later) | {"etag": form["etag"]})
    assert done.status_code == 409
    assert "is offered: accept or decline it first." in words(done.text)
    assert field(done.text.partition("Change it</h2>")[2], "end") == later


@pytest.mark.usefixtures("lab")
async def test_what_others_changed_is_named_and_not_undone_by_one_more_click(
    browsing: SignedIn, alice: httpx.AsyncClient
) -> None:
    made = await booked(alice, at(3), gpu_type="h100", title="runs")
    browser, path = await browsing("alice"), f"/bookings/{made['id']}"
    form = form_of(await browser.get(path), title="typed")
    assert (await alice.patch(f"/v1{path}", json={"end": at(5).isoformat()})).status_code == 200
    done = await browser.send(path, **form)
    shown = words(done.text)
    assert done.status_code == 412
    assert "The booking was changed meanwhile, so nothing was done. It is now from" in shown
    assert "Its title is now" not in shown
    assert "What you typed is kept below" in shown
    again = form_of(done.text)
    assert (again["title"], again["end"]) == ("typed", f"{at(5):%Y-%m-%dT%H:%M}")
    assert (await browser.send(path, **again)).status_code == 303
    found = (await alice.get(f"/v1{path}")).json()
    assert (found["title"], found["end"]) == ("typed", said(at(5)))
    # A button that was shown before sends nothing that was typed.
    ended = await browser.send(f"{path}/cancel", etag=form["etag"])
    assert ended.status_code == 412
    assert "Below is how it is now." in words(ended.text)
    assert (await alice.get(f"/v1{path}")).json()["status"] == "confirmed"

"""Slots are booked by forms, with their verdicts before."""

import re
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings.calendars import at, booked, execute, said
from tests.integration.api_service.web.browsing import words
from tests.integration.api_service.web.calendar.calendar_pages import GIVE_NODES_CPUS_BY_GPUS, field, sent
from tests.integration.api_service.web.conftest import SignedIn


@pytest.mark.usefixtures("lab")
async def test_a_slot_is_booked_once_however_often_the_form_is_sent(
    browsing: SignedIn, alice: httpx.AsyncClient
) -> None:
    browser = await browsing("alice")
    first, second = await sent(browser, title="runs"), await sent(browser, title="runs")
    assert (first.status_code, first.headers["location"]) == (303, second.headers["location"])
    [made] = (await alice.get("/v1/bookings")).json()["items"]
    assert (made["title"], made["start"], made["duration"]) == ("runs", said(at(2)), "PT2H")
    # With something else in it, it is another: whoever goes back and books more gets more.
    assert (await sent(browser, title="more")).headers["location"] != first.headers["location"]


@pytest.mark.usefixtures("lab")
async def test_the_verdict_books_nothing(browsing: SignedIn, alice: httpx.AsyncClient) -> None:
    browser = await browsing("alice")
    for path in ("/calendar/verdict", "/calendar/check"):
        done = await sent(browser, path)
        assert done.status_code == 200
        assert "Free: 1 × h100" in words(done.text)
    done = await sent(browser, "/calendar/verdict", repeats="daily", count="3")
    assert "3 dates can be booked" in words(done.text)
    done = await sent(browser, "/calendar/verdict", gpus="5")
    assert "This can’t be booked" in words(done.text)
    done = await sent(browser, "/calendar/verdict", gpus="4", wait="yes")
    assert "Free: 4" in words(done.text)
    assert (await alice.get("/v1/bookings")).json()["items"] == []


@pytest.mark.usefixtures("lab")
async def test_the_verdict_shows_the_share_of_cpus_and_memory(browsing: SignedIn, runtime: Runtime) -> None:
    browser = await browsing("alice")
    assert "CPUs and memory" not in words((await sent(browser, "/calendar/verdict")).text)
    await execute(runtime, GIVE_NODES_CPUS_BY_GPUS)
    assert "CPUs and memory: 16 CPUs, 64 GiB." in words((await sent(browser, "/calendar/verdict")).text)


@pytest.mark.usefixtures("lab")
async def test_the_verdict_says_what_a_booking_and_each_date_of_a_series_cost(
    browsing: SignedIn, root: httpx.AsyncClient
) -> None:
    browser = await browsing("alice")
    assert "cost" not in words((await sent(browser, "/calendar/verdict", repeats="daily", count="3")).text)
    assert (await root.put("/v1/policy/default", json={"cost_per_gpu_hour": "400 EUR"})).status_code == 200
    one = words((await sent(browser, "/calendar/verdict")).text)
    assert "It costs about 800.00 EUR for its whole duration." in one
    series = words((await sent(browser, "/calendar/verdict", repeats="daily", count="3")).text)
    assert series.count(", 800.00 EUR") == 3
    assert "All dates together cost about 2,400.00 EUR" in series


@pytest.mark.usefixtures("lab")
async def test_what_is_refused_is_shown_with_the_slots_that_would_do(
    browsing: SignedIn, alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    await booked(bob, at(1), gpus=4, gpu_type="h100", duration="PT6H")
    browser = await browsing("alice")
    done = await sent(browser, title="kept as it was")
    assert done.status_code == 409
    assert 'value="kept as it was"' in done.text
    slots = re.findall(r'name="slot" value="([^"]+)"', done.text)
    assert f"{said(at(7))}/{said(at(9))}" in slots
    done = await sent(browser, slot=slots[-1])
    made = (await alice.get(f"/v1{done.headers['location']}")).json()
    assert f"{made['start']}/{made['end']}" == slots[-1]
    done = await sent(browser, wait="yes", key="k2")
    assert "on the waitlist" in words(await browser.get(done.headers["location"]))


@pytest.mark.usefixtures("lab")
async def test_what_is_typed_wrong_is_said_and_sent_nowhere(browsing: SignedIn, alice: httpx.AsyncClient) -> None:
    browser = await browsing("alice")
    done = await sent(browser, length="long", title="kept")
    assert done.status_code == 422
    assert "how long it lasts like 4h" in words(done.text)
    assert 'value="kept"' in done.text
    done = await sent(browser, node="no such node")
    assert done.status_code == 422
    assert (await alice.get("/v1/bookings")).json()["items"] == []


@pytest.mark.usefixtures("lab")
async def test_forms_that_are_not_from_our_pages_do_nothing(browsing: SignedIn, alice: httpx.AsyncClient) -> None:
    made = await booked(alice, at(3), gpu_type="h100")
    browser = await browsing("alice")
    for path in ("/calendar/bookings", "/calendar/feed", f"/bookings/{made['id']}", f"/bookings/{made['id']}/cancel"):
        for forged in ({}, {"csrf_token": "0" * 96}):
            response = await browser.client.post(path, data={"gpus": "1", "title": "x", **forged})
            assert response.status_code == 403, path
    [same] = (await alice.get("/v1/bookings")).json()["items"]
    assert same == made


async def test_a_calendar_address_is_shown_once_and_works(browsing: SignedIn) -> None:
    browser = await browsing("alice")
    done = await browser.send("/calendar/feed", page="/calendar", key="f1")
    address = field(done.text.replace('id="feed"', 'name="feed"'), "feed")
    parts = urlsplit(address)
    assert parts.netloc == "pages"
    assert parse_qs(parts.query)["token"]
    response = await browser.client.get(f"{parts.path}?{parts.query}")
    assert response.text.startswith("BEGIN:VCALENDAR")
    again = await browser.send("/calendar/feed", page="/calendar", key="f1")
    assert "shown once" in words(again.text)
    assert parts.query not in again.text
    await browser.send("/calendar/feed/remove", page="/calendar")
    assert (await browser.client.get(f"{parts.path}?{parts.query}")).status_code == 401
    assert "does not work any more" in words(await browser.get("/calendar"))
    await browser.send("/calendar/feed/remove", page="/calendar", key="again")
    assert "You have no calendar address." in words(await browser.get("/calendar"))

"""Access to pages and forms: every route × every kind of visitor; made from the routes."""

import re
from itertools import product

import httpx
import pytest

from api_service.web.page_list import WEB_ROUTES
from api_service.web.routing import PageAccess
from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings import calendars
from tests.integration.api_service.web.browsing import words
from tests.integration.api_service.web.conftest import SignedIn

_STREAMS = {"/live", "/jobs/{job_id}/log"}
FOR_ANYBODY = {"/sign-in", "/sign-in/start", "/sign-in/done"}
_PART = re.compile(r"\{(\w+)(?::\w+)?\}")


def test_only_the_sign_in_is_for_anybody() -> None:
    assert {route.path for route in WEB_ROUTES if route.access is PageAccess.ANYBODY} == FOR_ANYBODY


def test_no_address_is_there_twice() -> None:
    places = [(route.method, _PART.sub("{}", route.path)) for route in WEB_ROUTES]
    assert len(places) == len(set(places))


async def test_whoever_is_not_signed_in_is_led_to_the_sign_in(browsing: SignedIn) -> None:
    browser = await browsing("anonymous")
    for route in WEB_ROUTES:
        if route.access is PageAccess.ANYBODY:
            continue
        answer = await browser.client.request(route.method, _PART.sub("x", route.path))
        assert answer.status_code == 303, (route.method, route.path)
        assert answer.headers["location"].startswith("/sign-in")
        part = await browser.client.request(route.method, _PART.sub("x", route.path), headers={"HX-Request": "true"})
        assert part.status_code == 401, (route.method, route.path)


async def test_no_form_is_taken_that_no_page_of_theirs_has_made(browsing: SignedIn) -> None:
    root = await browsing("root")
    token = await (await browsing("alice")).token("/jobs")
    elsewhere = {"Sec-Fetch-Site": "cross-site"}
    for route in WEB_ROUTES:
        if route.method != "GET" and route.access is not PageAccess.ANYBODY:
            # Old pages sign out: cookies and browsers keep other sites from it.
            marks = ({}, elsewhere) if route.needs_fresh_page else (elsewhere,)
            for sent, headers in product(({}, {"csrf_token": token}), marks):
                path = _PART.sub("x", route.path)
                answer = await root.client.request(route.method, path, data=sent, headers=headers)
                assert answer.status_code == 403, (route.method, route.path)
    assert [route.path for route in WEB_ROUTES if not route.needs_fresh_page] == ["/sign-out"]
    assert (await root.client.get("/jobs")).status_code == 200  # nor has any signed them out


@pytest.mark.parametrize("kind", ["job", "booking"])
async def test_what_is_somebody_elses_is_not_there(
    browsing: SignedIn, runtime: Runtime, alice: httpx.AsyncClient, kind: str
) -> None:
    await calendars.add_nodes(runtime, node1=("h100", 4))
    if kind == "job":
        answer = await alice.post("/v1/jobs", json={"gpus": 1, "duration": 60, "workload": {}})
    else:
        answer = await alice.post("/v1/bookings", json=calendars.asked(gpus=1))
    thing = answer.json()["id"]
    bob = await browsing("bob")
    token = await bob.token("/jobs")
    tried = 0
    for route in WEB_ROUTES:
        if f"{{{kind}_id}}" in route.path:
            tried += 1
            address = _PART.sub("alice", route.path.replace(f"{{{kind}_id}}", thing))
            sent = {"csrf_token": token, "by": "1h", "title": "mine", "start": "2030-01-01T00:00", "duration": "1h"}
            sent |= {"port": "8888"}
            answer = await bob.client.request(
                route.method,
                address,
                data=sent if route.method != "GET" else None,
                headers={"HX-Request": "true"} if route.part_of else {},
            )
            assert answer.status_code == 404, (route.method, route.path, answer.status_code)
    assert tried >= 3


async def test_an_address_without_a_page_is_answered_without_words_of_rest(browsing: SignedIn) -> None:
    answer = await (await browsing("alice")).client.get("/nowhere", headers={"Accept": "text/html"})
    assert answer.status_code == 404
    assert "There is no page at this address." in words(answer.text)
    assert "/docs" not in answer.text


async def test_parts_of_pages_lead_to_their_pages(
    browsing: SignedIn, runtime: Runtime, alice: httpx.AsyncClient
) -> None:
    """Opened in a browser, everything that is HTML is a whole page, or leads to one."""
    await calendars.add_nodes(runtime, node1=("h100", 4))
    things = {
        "job_id": (await alice.post("/v1/jobs", json={"gpus": 1, "duration": 60, "workload": {}})).json()["id"],
        "booking_id": (await alice.post("/v1/bookings", json=calendars.asked(gpus=1))).json()["id"],
        "node": "node1",
    }
    root = await browsing("root")
    for route in (route for route in WEB_ROUTES if route.method == "GET" and route.path not in _STREAMS):
        path = _PART.sub(lambda part: things.get(part[1], "x"), route.path)
        answer = await root.client.get(f"{path}?card=node1/0", headers={"Accept": "text/html"})
        if route.part_of is not None:
            page = _PART.sub(lambda part: things[part[1]], route.part_of)
            assert (answer.status_code, answer.headers["location"]) == (303, f"{page}?card=node1/0"), route.path
        elif answer.headers.get("content-type", "").startswith("text/html") and answer.text:
            assert answer.text.lower().startswith("<!doctype html>"), f"{route.path} is a part: it needs part_of"

"""Access to pages and forms: every route × every kind of visitor; made from the routes."""

import re
from itertools import product
from typing import Any

import httpx
import pytest

from api_service.web.page_list import WEB_ROUTES
from api_service.web.routing import PageAccess
from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings import calendars
from tests.integration.api_service.callers import submitted
from tests.integration.api_service.web.browsing import words
from tests.integration.api_service.web.conftest import SignedIn

_STREAMS = {"/live", "/jobs/{job_id}/log"}
_SHARE, _ELEMENTS = "/jobs/{job_id}/shares/{user}/end", "/jobs/{job_id}/elements"
_LACKS = {"job": {_SHARE, _ELEMENTS}, "array": {_SHARE}, "booking": set[str]()}
"""Pages that the thing of a test does not have even for its owner: it is shared with nobody, or is no array."""
FOR_ANYBODY = {"/sign-in", "/sign-in/start", "/sign-in/done"}
_PART = re.compile(r"\{(\w+)(?::\w+)?\}")


async def _job_with_graph(client: httpx.AsyncClient, **more: Any) -> str:
    """A job that waits for another one."""
    first = await submitted(client)
    after = await submitted(client, after=[{"job": first["id"]}], **more)
    return str(after["id"])


async def _booking(client: httpx.AsyncClient) -> str:
    booking = (await client.post("/v1/bookings", json=calendars.asked(gpus=1))).raise_for_status().json()
    return str(booking["id"])


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


@pytest.mark.parametrize("kind", _LACKS)
async def test_what_is_somebody_elses_is_not_there(
    browsing: SignedIn, runtime: Runtime, alice: httpx.AsyncClient, kind: str
) -> None:
    await calendars.add_nodes(runtime, node1=("h100", 4))
    more = {"array": {"size": 2}} if kind == "array" else {}
    thing = await _booking(alice) if kind == "booking" else await _job_with_graph(alice, **more)
    name = "{booking_id}" if kind == "booking" else "{job_id}"
    bob, owner = await browsing("bob"), await browsing("alice")
    token = await bob.token("/jobs")
    tried, lacks = 0, set()
    for route in WEB_ROUTES:
        if name in route.path:
            tried += 1
            address = _PART.sub("alice", route.path.replace(name, thing))
            sent = {"csrf_token": token, "by": "1h", "title": "mine", "start": "2030-01-01T00:00", "duration": "1h"}
            sent |= {"port": "8888"}
            headers = {"HX-Request": "true"} if route.part_of else {}
            data = sent if route.method != "GET" else None
            answer = await bob.client.request(route.method, address, data=data, headers=headers)
            assert answer.status_code == 404, (route.method, route.path, answer.status_code)
            if route.method == "GET" and route.path not in _STREAMS:
                own = await owner.client.get(address, headers=headers)
                lacks |= {route.path} if own.status_code == 404 else set()
    assert lacks == _LACKS[kind]
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
    things = {"job_id": await _job_with_graph(alice), "booking_id": await _booking(alice), "node": "node1"}
    root = await browsing("root")
    for route in (route for route in WEB_ROUTES if route.method == "GET" and route.path not in _STREAMS):
        path = _PART.sub(lambda part: things.get(part[1], "x"), route.path)
        answer = await root.client.get(f"{path}?card=node1/0", headers={"Accept": "text/html"})
        if route.part_of is not None:
            page = _PART.sub(lambda part: things[part[1]], route.part_of)
            assert (answer.status_code, answer.headers["location"]) == (303, f"{page}?card=node1/0"), route.path
        elif answer.headers.get("content-type", "").startswith("text/html") and answer.text:
            assert answer.text.lower().startswith("<!doctype html>"), f"{route.path} is a part: it needs part_of"

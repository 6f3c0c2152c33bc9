"""The private calendar address: read-only, one per person, told once, and gone when it is removed."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx
import pytest
from icalendar import Calendar

from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.people import tokens
from reservation_core.usecases.people.calendar_feed import make_feed
from reservation_core.usecases.people.web_sessions import open_session
from tests.integration.api_service.bookings.calendars import add_nodes, asked, at, booked, execute
from tests.integration.api_service.callers import People


@pytest.fixture(autouse=True)
async def lab(runtime: Runtime) -> None:
    """One h100."""
    await add_nodes(runtime, a=("h100", 1))


async def test_a_calendar_program_reads_ones_bookings(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, calling: object, runtime: Runtime
) -> None:
    await booked(bob, at(9), title="not alice's")
    title = "line\nBEGIN:VEVENT; with, commas \\ and äöü " + "x" * 100
    mine = await booked(alice, at(1), title=title.replace("\n", " "))
    # Titles of more than one line are refused now, and are there from before.
    await execute(runtime, "UPDATE reservations SET name = overlay(name PLACING E'\n' FROM 5) WHERE name LIKE 'line%'")
    waiting = (await alice.post("/v1/bookings", json=asked(at(9), wait=True))).json()
    cancelled = await booked(alice, at(5))
    await alice.delete(f"/v1/bookings/{cancelled['id']}")
    made = await alice.post("/v1/bookings/feed")
    assert made.status_code == 201
    anonymous: httpx.AsyncClient = calling("anonymous")  # type: ignore[operator]
    response = await anonymous.get(made.json()["path"])
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/calendar; charset=utf-8"
    assert response.headers["cache-control"] == "private, no-cache"
    events = {str(event["uid"]): event for event in Calendar.from_ical(response.content).walk("VEVENT")}
    assert set(events) == {f"{mine['id']}@gpu-dev", f"{waiting['id']}@gpu-dev"}
    event = events[f"{mine['id']}@gpu-dev"]
    assert str(event["summary"]) == f"{title} (1 x h100)"
    assert (event.decoded("dtstart"), event.decoded("dtend")) == (at(1), at(2))
    assert str(event["location"]) == "a 0"
    assert (str(event["status"]), str(events[f"{waiting['id']}@gpu-dev"]["status"])) == ("CONFIRMED", "TENTATIVE")
    assert max(len(line) for line in response.content.split(b"\r\n")) <= 75


async def test_a_new_address_ends_the_old_one_and_a_removed_one_is_gone(
    alice: httpx.AsyncClient, calling: object, runtime: Runtime, capsys: pytest.CaptureFixture[str]
) -> None:
    anonymous: httpx.AsyncClient = calling("anonymous")  # type: ignore[operator]
    key = {"Idempotency-Key": "once"}
    first = (await alice.post("/v1/bookings/feed", headers=key)).json()["path"]
    assert (await alice.post("/v1/bookings/feed", headers=key)).json()["path"] is None
    assert (await anonymous.get(first)).status_code == 200
    second = (await alice.post("/v1/bookings/feed")).json()["path"]
    assert (await anonymous.get(first)).status_code == 401
    assert (await anonymous.get(second)).status_code == 200
    # The stored and the logged value would not open it.
    secret = second.partition("token=")[2]
    [stored] = await execute(runtime, "SELECT * FROM calendar_feeds")
    assert secret.encode() not in bytes(stored.digest)
    assert (await alice.delete("/v1/bookings/feed")).status_code == 204
    assert (await anonymous.get(second)).status_code == 401
    assert (await alice.delete("/v1/bookings/feed")).status_code == 404
    assert secret not in "".join(capsys.readouterr())


async def test_the_address_opens_nothing_else_and_nothing_else_opens_it(
    alice: httpx.AsyncClient, root: httpx.AsyncClient, calling: object
) -> None:
    anonymous: httpx.AsyncClient = calling("anonymous")  # type: ignore[operator]
    path = (await alice.post("/v1/bookings/feed")).json()["path"]
    secret = path.partition("token=")[2]
    assert (await anonymous.get("/v1/bookings", headers={"Authorization": f"Bearer {secret}"})).status_code == 401
    assert (await anonymous.get(f"/v1/bookings?token={secret}")).status_code == 401
    token = alice.headers["authorization"].partition(" ")[2]
    for wrong in (
        "",
        "?token=",
        f"?token={token}",
        f"?token={secret}x",
        "?token=%00",
        "?token=ä",
        f"?token={secret[:-1]}",
    ):
        response = await anonymous.get(f"/v1/bookings.ics{wrong}")
        assert response.status_code == 401, wrong
        assert response.headers["www-authenticate"].startswith("Bearer")
    assert (await anonymous.get("/v1/bookings.ics")).status_code == 401
    assert (await anonymous.post(path)).status_code == 405
    assert (await root.delete("/v1/users/alice")).status_code == 200
    assert (await anonymous.get(path)).status_code == 401


async def test_the_address_ends_with_the_token_that_it_was_made_with(
    alice: httpx.AsyncClient, root: httpx.AsyncClient, calling: Callable[[str], httpx.AsyncClient], runtime: Runtime
) -> None:
    anonymous = calling("anonymous")

    async def make_with(token: dict[str, Any]) -> str:
        headers = {"Authorization": f"Bearer {token['token']}"}
        made = await anonymous.post("/v1/bookings/feed", headers=headers)
        assert made.json()["expires_at"] == token["expires_at"]
        path: str = made.json()["path"]
        assert (await anonymous.get(path)).status_code == 200
        return path

    short = (await alice.post("/v1/tokens", json={"expires_in": 60})).json()
    path = await make_with(short)
    await execute(runtime, "UPDATE tokens SET expires_at = now() WHERE id = :id", id=short["id"])
    assert (await anonymous.get(path)).status_code == 401

    maker = (await alice.post("/v1/tokens", json={})).json()
    child = await anonymous.post("/v1/tokens", json={}, headers={"Authorization": f"Bearer {maker['token']}"})
    path = await make_with(child.json())
    assert (await alice.delete(f"/v1/tokens/{maker['id']}")).status_code == 200
    assert (await anonymous.get(path)).status_code == 401

    path = (await alice.post("/v1/bookings/feed")).json()["path"]
    assert (await root.delete("/v1/tokens?user=alice")).status_code == 200
    assert (await anonymous.get(path)).status_code == 401


async def test_revoking_all_tokens_ends_the_address_whatever_made_it(
    alice: httpx.AsyncClient, calling: Callable[[str], httpx.AsyncClient], runtime: Runtime
) -> None:
    anonymous = calling("anonymous")
    for made_before_that_was_written in (False, True):
        path = (await alice.post("/v1/bookings/feed")).json()["path"]
        if made_before_that_was_written:
            await execute(runtime, "UPDATE calendar_feeds SET made_with = NULL")
        assert (await anonymous.get(path)).status_code == 200
        assert (await alice.delete("/v1/tokens")).status_code == 200
        assert (await anonymous.get(path)).status_code == 401
    events = await execute(runtime, "SELECT actor, subject FROM events WHERE kind = 'calendar_feed_removed'")
    assert [(event.actor, event.subject) for event in events] == [("alice", "user:alice")] * 2


async def test_an_address_made_in_a_browser_outlives_the_session(
    people: People, calling: Callable[[str], httpx.AsyncClient], runtime: Runtime
) -> None:
    async with runtime.uow() as uow:
        session = await open_session(
            uow, people.principals["alice"], lasts=timedelta(hours=12), ids=runtime.ids, now=runtime.clock.now()
        )
        in_browser = await uow.identities.principal(runtime.ids.digest(session.secret), runtime.clock.now())
        assert in_browser is not None
        feed = await make_feed(uow, in_browser, runtime.ids)
        await tokens.revoke(uow, in_browser, in_browser.token_id, runtime.clock.now())
    assert (await calling("anonymous").get(f"/v1/bookings.ics?token={feed.secret}")).status_code == 200


async def test_what_has_not_changed_is_not_sent_again(alice: httpx.AsyncClient, calling: object) -> None:
    anonymous: httpx.AsyncClient = calling("anonymous")  # type: ignore[operator]
    path = (await alice.post("/v1/bookings/feed")).json()["path"]
    mine = await booked(alice, at(1))
    tag = (await anonymous.get(path)).headers["etag"]
    assert tag.startswith('W/"')
    for given in (tag, tag.removeprefix("W/"), f'"other", {tag}', "*"):
        same = await anonymous.get(path, headers={"If-None-Match": given})
        assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    for given in ('"other"', tag[:-2] + '"', "nonsense"):
        assert (await anonymous.get(path, headers={"If-None-Match": given})).status_code == 200
    await alice.patch(f"/v1/bookings/{mine['id']}", json={"title": "another"})
    changed = await anonymous.get(path, headers={"If-None-Match": tag})
    assert (changed.status_code, changed.headers["etag"] != tag) == (200, True)
    # A caller without a right to it learns nothing by a tag.
    assert (await anonymous.get(f"{path}x", headers={"If-None-Match": "*"})).status_code == 401


async def test_of_too_many_the_oldest_are_left_out(
    alice: httpx.AsyncClient, calling: object, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reservation_core.usecases.people.calendar_feed.MOST", 2)
    anonymous: httpx.AsyncClient = calling("anonymous")  # type: ignore[operator]
    made = [await booked(alice, at(hour)) for hour in (1, 5, 3)]
    path = (await alice.post("/v1/bookings/feed")).json()["path"]

    async def shown() -> list[str]:
        events = Calendar.from_ical((await anonymous.get(path)).content).walk("VEVENT")
        return [str(event["uid"]).partition("@")[0] for event in events]

    assert await shown() == [made[2]["id"], made[1]["id"]]
    monkeypatch.setattr("reservation_core.usecases.people.calendar_feed.MOST", 5000)
    assert await shown() == [made[0]["id"], made[2]["id"], made[1]["id"]]
    # What ended 90 days ago is not shown any more, what ended a little later is.
    for booking, days in ((made[0], 91), (made[2], 89)):
        await execute(
            runtime,
            "UPDATE bookings SET starts_at = starts_at - make_interval(days => :days), "
            "ends_at = ends_at - make_interval(days => :days) WHERE id = :id",
            days=days,
            id=booking["id"],
        )
    assert await shown() == [made[2]["id"], made[1]["id"]]

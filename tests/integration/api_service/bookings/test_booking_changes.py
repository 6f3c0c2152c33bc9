"""Moving, extending, shortening and cancelling bookings, and series: all or nothing."""

from datetime import timedelta
from typing import Any

import httpx
import pytest

from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings.calendars import (
    HOUR,
    add_nodes,
    asked,
    at,
    booked,
    execute,
    kinds_of,
    ledger,
    said,
)


@pytest.fixture(autouse=True)
async def lab(runtime: Runtime) -> None:
    """`a` has two h100, `b` one t4."""
    await add_nodes(runtime, a=("h100", 2), b=("t4", 1))


async def change(client: httpx.AsyncClient, booking: dict[str, Any], **fields: Any) -> httpx.Response:
    """Ask for a change."""
    return await client.patch(f"/v1/bookings/{booking['id']}", json=fields)


async def test_extending_shortening_and_moving_keep_the_cards(alice: httpx.AsyncClient, runtime: Runtime) -> None:
    await booked(alice, gpu_type="h100")
    booking = await booked(alice, gpu_type="h100")
    [(node, card, _, _)] = await ledger(runtime, booking["id"])
    longer = await change(alice, booking, duration="PT3H")
    assert (longer.status_code, longer.json()["end"]) == (200, said(at(4)))
    assert longer.headers["etag"] == '"2"'
    shorter = await change(alice, booking, end=at(1, 30).isoformat())
    assert shorter.json()["duration"] == "PT30M"
    moved = await change(alice, booking, start=at(6).isoformat())
    assert (moved.json()["start"], moved.json()["end"]) == (said(at(6)), said(at(6, 30)))
    assert await ledger(runtime, booking["id"]) == [(node, card, at(6), at(6, 30))]
    assert await kinds_of(runtime, booking["id"]) == ["booking_confirmed", *["booking_moved"] * 3]
    local = await change(alice, booking, start="2026-01-01T00:00", time_zone="Europe/Stockholm")
    assert [rule["code"] for rule in local.json()["broken_rules"]] == ["past_start"]


async def test_a_move_takes_other_cards_where_its_own_are_taken(alice: httpx.AsyncClient, runtime: Runtime) -> None:
    first = await booked(alice, at(1), gpu_type="h100")
    await booked(alice, at(2), gpu_type="h100")
    assert [row[1] for row in await ledger(runtime, first["id"])] == [0]
    moved = await change(alice, first, start=at(2).isoformat())
    assert moved.status_code == 200
    assert await ledger(runtime, first["id"]) == [("a", 1, at(2), at(3))]


async def test_a_change_that_cannot_be_had_keeps_the_old_slot(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, runtime: Runtime
) -> None:
    mine = await booked(alice, at(1), gpu_type="t4")
    await booked(bob, at(2), gpu_type="t4")
    before = await ledger(runtime, mine["id"])
    for fields in (
        {"start": at(2).isoformat()},
        {"duration": "PT2H"},
        {"node": "a"},
        {"start": at(-3).isoformat()},
        {"node": "nowhere"},
    ):
        refused = await change(alice, mine, **fields)
        assert refused.status_code == 409, fields
        assert refused.json()["type"] == "urn:gpu-dev:problem:not_bookable"
        assert await ledger(runtime, mine["id"]) == before
    assert (await alice.get(f"/v1/bookings/{mine['id']}")).json() == mine
    assert {"start": said(at(3)), "end": said(at(4))} in (await change(alice, mine, start=at(2).isoformat())).json()[
        "nearest_slots"
    ]


async def test_a_change_is_for_what_was_seen(alice: httpx.AsyncClient) -> None:
    booking = await booked(alice)
    path = f"/v1/bookings/{booking['id']}"
    assert (await alice.patch(path, json={"title": "x"}, headers={"If-Match": '"1"'})).status_code == 200
    for method in ("PATCH", "DELETE"):
        body = {"title": "y"} if method == "PATCH" else None
        stale = await alice.request(method, path, json=body, headers={"If-Match": '"1"'})
        assert (stale.status_code, stale.json()["type"]) == (412, "urn:gpu-dev:problem:stale_version")
    renamed = (await alice.get(path)).json()
    assert (renamed["title"], renamed["start"]) == ("x", booking["start"])
    assert (await alice.patch(path, json={"title": None})).json()["title"] is None
    for body in ({}, {"start": None}, {"gpus": 2}, {"end": "later"}, {"duration": 1}, {"time_zone": "UTC"}):
        assert (await alice.patch(path, json=body)).status_code == 422, body
    backwards = await alice.patch(path, json={"end": at(0).isoformat()})
    assert (backwards.status_code, backwards.json()["type"]) == (409, "urn:gpu-dev:problem:not_changeable")


async def test_cancelling_gives_all_of_it_back_at_once(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, runtime: Runtime
) -> None:
    booking = await booked(alice, gpu_type="t4")
    cancelled = await alice.delete(f"/v1/bookings/{booking['id']}")
    assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
    assert cancelled.json()["reason"]["code"] == "cancelled_by_user"
    assert await ledger(runtime, booking["id"]) == []
    await booked(bob, gpu_type="t4")
    again = await alice.delete(f"/v1/bookings/{booking['id']}")
    assert (again.status_code, again.json()["type"]) == (409, "urn:gpu-dev:problem:already_final")
    assert (await change(alice, booking, title="x")).status_code == 409
    assert await kinds_of(runtime, booking["id"]) == ["booking_confirmed", "booking_cancelled"]


async def begin(runtime: Runtime, booking: dict[str, Any]) -> None:
    """The slot has begun an hour ago, as if time had passed."""
    await execute(
        runtime,
        "WITH b AS (UPDATE bookings SET starts_at = starts_at - interval '3 hours' WHERE id = :id),"
        " r AS (UPDATE reservations SET status = 'active', started_at = now() WHERE id = :id) "
        "UPDATE allocations SET during = tstzrange(lower(during) - interval '3 hours', upper(during)) "
        "WHERE reservation_id = :id",
        id=booking["id"],
    )


async def put_job_within(runtime: Runtime, booking: dict[str, Any], job_id: str, status: str, *, hours: float) -> None:
    """A job that waits in a booking, or holds its first card for so long."""
    running = status == "running"
    await execute(
        runtime,
        "INSERT INTO reservations (id, kind, user_id, status, reason_code, reason, gpus, nodes, duration, priority, "
        "workload, created_at, changed_at, booking_id, attempt, started_at, ends_at) "
        "SELECT :job, 'job', user_id, :status, 'submitted', 'x', 1, 1, interval '1 hour', 0, '{}', now(), now(), :id, "
        ":attempt, CASE WHEN :running THEN now() END, CASE WHEN :running THEN now() + interval '1 hour' END "
        "FROM reservations WHERE id = :id",
        job=job_id,
        status=status,
        id=booking["id"],
        attempt=1 if running else 0,
        running=running,
    )
    if running:
        await execute(
            runtime,
            "INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at, booking_id) "
            "SELECT :job, 1, gpu_id, 0, tstzrange(now(), now() + make_interval(hours => :hours)), true, now(), :id "
            "FROM allocations WHERE reservation_id = :id ORDER BY gpu_id LIMIT 1",
            job=job_id,
            hours=hours,
            id=booking["id"],
        )


async def test_a_booking_that_has_begun_ends_with_its_jobs(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, runtime: Runtime
) -> None:
    booking = await booked(alice, gpu_type="h100", gpus=2, duration="PT8H")
    await begin(runtime, booking)
    await put_job_within(runtime, booking, "job-runs", "running", hours=2)
    await put_job_within(runtime, booking, "job-waits", "queued", hours=0)
    assert (await alice.get(f"/v1/bookings/{booking['id']}")).json()["jobs"] == ["job-runs", "job-waits"]
    cancelled = await alice.delete(f"/v1/bookings/{booking['id']}")
    assert cancelled.status_code == 200, cancelled.text
    assert (await alice.get("/v1/jobs/job-waits")).json()["status"] == "cancelled"
    assert (await alice.get("/v1/jobs/job-runs")).json()["status"] == "ending"
    rows = await execute(
        runtime, "SELECT reservation_id, held, released_at, upper(during) <= now() AS over FROM allocations ORDER BY id"
    )
    assert [(row.reservation_id, row.held, row.released_at is None, row.over) for row in rows] == [
        (booking["id"], False, False, True),
        (booking["id"], False, False, True),
        ("job-runs", True, True, True),
    ]
    # The pod is still there: its card is not counted on for what begins soon, the other one is.
    async with runtime.uow() as uow:
        soon = (await uow.now()).replace(second=0, microsecond=0) + timedelta(minutes=1)
    got = await booked(bob, soon, gpu_type="h100")
    [(_, held, _, _)] = await ledger(runtime, "job-runs")
    assert got["allocations"][0]["gpu_indices"] == [1 - held]
    assert (await bob.post("/v1/bookings", json=asked(soon, gpu_type="h100"))).status_code == 409
    await booked(bob, soon + HOUR, gpus=2, gpu_type="h100")


async def test_what_runs_in_it_bounds_how_short_it_gets(alice: httpx.AsyncClient, runtime: Runtime) -> None:
    booking = await booked(alice, gpu_type="t4", duration="PT8H")
    await begin(runtime, booking)
    await put_job_within(runtime, booking, "job-runs", "running", hours=3)
    refused = await change(alice, booking, end=at(1).isoformat())
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:gpu-dev:problem:calendar_conflict")
    assert "job-runs" in refused.json()["detail"]
    assert (await change(alice, booking, end=at(5).isoformat())).status_code == 200
    assert (await change(alice, booking, start=at(2).isoformat())).json()[
        "type"
    ] == "urn:gpu-dev:problem:not_changeable"
    past = await change(alice, booking, end=at(-3).isoformat())
    assert past.status_code == 409


async def test_a_booking_that_has_begun_is_extended_on_its_own_cards_only(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, runtime: Runtime
) -> None:
    booking = await booked(alice, gpu_type="h100", duration="PT2H")
    await begin(runtime, booking)
    others = await booked(bob, at(4), gpu_type="h100", node="a", duration="PT1H")
    assert (await change(alice, booking, end=at(4).isoformat())).status_code == 200
    refused = await change(alice, booking, end=at(5).isoformat())
    assert refused.status_code == 409
    assert f"given to {others['id']} of bob from {at(4):%Y-%m-%dT%H:%M:%SZ} on" in refused.json()["detail"]
    rehearsed = await alice.patch(f"/v1/bookings/{booking['id']}?dry_run=true", json={"end": at(5).isoformat()})
    assert rehearsed.json()["broken_rules"] == refused.json()["broken_rules"]
    assert [row[1:] for row in await ledger(runtime, booking["id"])] == [(0, at(-2), at(4))]


async def weekly(client: httpx.AsyncClient, count: int, **fields: Any) -> httpx.Response:
    """Ask for a series."""
    rule = {"rrule": f"FREQ=WEEKLY;COUNT={count}", "on_conflict": fields.pop("on_conflict", "fail")}
    return await client.post("/v1/bookings", json=asked(at(1), gpu_type="t4", recurrence=rule, **fields))


async def test_a_series_is_booked_whole(alice: httpx.AsyncClient, runtime: Runtime) -> None:
    response = await weekly(alice, 8)
    assert response.status_code == 201, response.text
    series = response.json()
    assert [booking["start"] for booking in series["items"]] == [said(at(1) + timedelta(weeks=n)) for n in range(8)]
    assert {booking["series_id"] for booking in series["items"]} == {series["series_id"]}
    assert series["skipped"] == []
    short = await alice.post("/v1/bookings", json=asked(at(3), gpu_type="t4", recurrence="FREQ=DAILY;COUNT=2"))
    assert len(short.json()["items"]) == 2


async def test_a_series_that_conflicts_on_its_seventh_date_books_nothing(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    seventh = at(1) + timedelta(weeks=6)
    await booked(bob, seventh, gpu_type="t4")
    refused = await weekly(alice, 8)
    assert refused.status_code == 409
    problem = refused.json()
    [rule] = problem["broken_rules"]
    assert rule["code"] == "no_free_gpus"
    assert rule["detail"].startswith(f"{seventh:%Y-%m-%dT%H:%M}Z: ")
    assert problem["detail"].endswith(
        "1 of 8 dates are not available. Change these, or leave them out with `on_conflict`."
    )
    assert {"start": said(seventh + HOUR), "end": said(seventh + 2 * HOUR)} in problem["nearest_slots"]
    assert (await alice.get("/v1/bookings", params={"mine": True})).json()["items"] == []


async def test_a_refused_series_names_all_dates_that_are_not_available(alice: httpx.AsyncClient) -> None:
    daily = {"rrule": "FREQ=DAILY;COUNT=12"}
    refused = await alice.post("/v1/bookings", json=asked(at(1), gpu_type="b200", recurrence=daily))
    [rule] = refused.json()["broken_rules"]
    dates = ", ".join(f"{at(1) + timedelta(days=number):%Y-%m-%dT%H:%MZ}" for number in range(12))
    assert rule["detail"].startswith(f"{dates}: ")


async def test_a_series_may_leave_out_what_it_cannot_have(alice: httpx.AsyncClient, bob: httpx.AsyncClient) -> None:
    seventh = at(1) + timedelta(weeks=6)
    await booked(bob, seventh, gpu_type="t4")
    response = await weekly(alice, 8, on_conflict="skip")
    assert response.status_code == 201
    assert len(response.json()["items"]) == 7
    [skipped] = response.json()["skipped"]
    assert (skipped["start"], skipped["broken_rules"][0]["code"]) == (said(seventh), "no_free_gpus")
    assert {"start": said(seventh + HOUR), "end": said(seventh + 2 * HOUR)} in skipped["nearest_slots"]
    nothing = await alice.post(
        "/v1/bookings",
        json=asked(at(1), gpu_type="b200", recurrence={"rrule": "FREQ=DAILY;COUNT=2", "on_conflict": "skip"}),
    )
    assert nothing.status_code == 409
    [rule] = nothing.json()["broken_rules"]  # each reason once, with the dates that it is of
    assert rule["detail"].startswith(f"{at(1):%Y-%m-%dT%H:%M}Z, {at(1) + timedelta(days=1):%Y-%m-%dT%H:%M}Z: ")
    assert nothing.json()["detail"].endswith("Nothing was booked: none of the dates is available.")


async def test_of_a_series_one_or_those_that_follow_or_all_are_cancelled(alice: httpx.AsyncClient) -> None:
    ids = [booking["id"] for booking in (await weekly(alice, 6)).json()["items"]]

    async def open_ones() -> list[str]:
        found = await alice.get("/v1/bookings", params={"status": "confirmed"})
        return [booking["id"] for booking in found.json()["items"]]

    assert (await alice.delete(f"/v1/bookings/{ids[1]}")).json()["id"] == ids[1]
    assert await open_ones() == [ids[0], *ids[2:]]
    following = await alice.delete(f"/v1/bookings/{ids[4]}", params={"series": "following"})
    assert [booking["id"] for booking in following.json()["items"]] == ids[4:]
    assert await open_ones() == [ids[0], *ids[2:4]]
    everything = await alice.delete(f"/v1/bookings/{ids[2]}", params={"series": "all"})
    assert [booking["id"] for booking in everything.json()["items"]] == [ids[0], *ids[2:4]]
    assert await open_ones() == []


async def test_a_moved_request_on_the_waitlist_waits_for_its_new_time(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    await booked(bob, gpu_type="t4")
    waiting = (await alice.post("/v1/bookings", json=asked(gpu_type="t4", wait=True))).json()
    moved = await change(alice, waiting, start=at(5).isoformat())
    assert (moved.json()["status"], moved.json()["waits_until"]) == ("waiting", said(at(5)))
    gone = await alice.delete(f"/v1/bookings/{waiting['id']}")
    assert gone.json()["status"] == "cancelled"


async def test_what_is_offered_instead_of_a_move_counts_the_bookings_own_cards_as_free(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, runtime: Runtime
) -> None:
    await add_nodes(runtime, a=("h100", 1))
    mine = await booked(alice, at(4), duration="PT2H")
    await booked(bob, at(6))
    refused = await alice.patch(f"/v1/bookings/{mine['id']}", json={"start": at(5).isoformat()})
    assert refused.status_code == 409
    # An hour before its own slot, and over it: nobody else is there.
    assert {"start": said(at(4)), "end": said(at(6))} in refused.json()["nearest_slots"]

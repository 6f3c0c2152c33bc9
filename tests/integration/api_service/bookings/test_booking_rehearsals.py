"""`dry_run`: the verdict of a booking or a change in earnest, after which nothing is any different."""

import uuid
from typing import Any

import httpx
import pytest
from sqlalchemy.exc import IntegrityError

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.rehearse import rehearse
from tests.database.sql import sql
from tests.integration.api_service.bookings.calendars import HOUR, add_nodes, asked, at, booked, execute, said
from tests.integration.api_service.callers import submitted

DRY = {"dry_run": "true"}
_COUNTED = ("reservations", "bookings", "allocations", "events", "idempotency_keys", "pgmq.q_gpu_jobs")


@pytest.fixture(autouse=True)
async def lab(runtime: Runtime) -> None:
    """Two types: `a` has two h100, `b` one t4."""
    await add_nodes(runtime, a=("h100", 2), b=("t4", 1))


async def _rows(runtime: Runtime) -> list[int]:
    counts = ", ".join(f"(SELECT count(*) FROM {table})" for table in _COUNTED)
    return list((await execute(runtime, f"SELECT {counts}")).one())


def _problem(response: httpx.Response) -> dict[str, Any]:
    return {name: value for name, value in response.json().items() if name != "instance"}


def _same(verdict: dict[str, Any], booking: dict[str, Any]) -> None:
    more = {"verdict": "accepted", "cost": None}
    assert verdict == {name: booking[name] for name in verdict.keys() - more.keys()} | more


async def test_a_rehearsal_says_what_would_be_and_leaves_no_trace(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, runtime: Runtime
) -> None:
    request = asked(gpus=2, gpu_type="h100", title="thesis")
    before, key = await _rows(runtime), {"Idempotency-Key": str(uuid.uuid4())}
    woken: list[object] = []
    runtime.wakeups.wake = woken.append  # type: ignore[method-assign]
    rehearsed = await alice.post("/v1/bookings", json=request, params=DRY, headers=key)
    assert rehearsed.status_code == 200, rehearsed.text
    assert {"etag", "location"}.isdisjoint(rehearsed.headers)
    assert (woken, await _rows(runtime)) == ([], before)
    assert "id" not in rehearsed.json()
    # The key is as good as new, and the cards are still everybody's.
    assert (await bob.post("/v1/bookings", json=request, params=DRY)).status_code == 200
    made = await alice.post("/v1/bookings", json=request, headers=key)
    assert made.status_code == 201
    assert woken
    _same(rehearsed.json(), made.json())


async def test_a_rehearsal_is_refused_as_in_earnest(alice: httpx.AsyncClient, bob: httpx.AsyncClient) -> None:
    await booked(alice, gpus=2, gpu_type="h100")
    request = asked(gpu_type="h100")
    rehearsed = await bob.post("/v1/bookings", json=request, params=DRY)
    earnest = await bob.post("/v1/bookings", json=request)
    assert (rehearsed.status_code, earnest.status_code) == (409, 409)
    assert _problem(rehearsed) == _problem(earnest)
    assert rehearsed.json()["nearest_slots"]
    waiting = await bob.post("/v1/bookings", json={**request, "wait": True}, params=DRY)
    assert (waiting.status_code, waiting.json()["status"], waiting.json()["allocations"]) == (200, "waiting", [])
    for wrong in ({"dry_run": "perhaps"}, {"dry_run": ""}):
        assert (await bob.post("/v1/bookings", json=request, params=wrong)).status_code == 422
    unreadable = await bob.post("/v1/bookings", json=request, params=DRY, headers={"Idempotency-Key": "é".encode()})
    assert unreadable.status_code == 400


async def test_a_series_is_rehearsed_with_what_it_would_leave_out(alice: httpx.AsyncClient, runtime: Runtime) -> None:
    await booked(alice, at(25), gpus=2, gpu_type="h100")
    request = asked(gpu_type="h100", recurrence={"rrule": "FREQ=DAILY;COUNT=3", "on_conflict": "skip"})
    before = await _rows(runtime)
    rehearsed = await alice.post("/v1/bookings", json=request, params=DRY)
    assert rehearsed.status_code == 200, rehearsed.text
    assert await _rows(runtime) == before
    assert [booking["start"] for booking in rehearsed.json()["items"]] == [said(at()), said(at(49))]
    assert [date["start"] for date in rehearsed.json()["skipped"]] == [said(at(25))]
    made = (await alice.post("/v1/bookings", json=request)).json()
    assert rehearsed.json()["skipped"] == made["skipped"]
    for verdict, booking in zip(rehearsed.json()["items"], made["items"], strict=True):
        _same(verdict, booking)


async def test_a_change_is_rehearsed(alice: httpx.AsyncClient, bob: httpx.AsyncClient, runtime: Runtime) -> None:
    booking = await booked(alice, gpus=2, gpu_type="h100")
    path, before = f"/v1/bookings/{booking['id']}", await _rows(runtime)
    moved = {"start": at(5).isoformat()}
    rehearsed = await alice.patch(path, json=moved, params=DRY, headers={"If-Match": '"1"'})
    assert (rehearsed.status_code, rehearsed.json()["start"], rehearsed.json()["end"]) == (
        200, said(at(5)), said(at(5) + HOUR),
    )  # fmt: skip
    assert (await alice.get(path)).json() == booking
    assert await _rows(runtime) == before
    assert (await bob.patch(path, json=moved, params=DRY)).status_code == 404
    assert (await alice.patch(path, json=moved, params=DRY, headers={"If-Match": '"7"'})).status_code == 412
    _same(rehearsed.json(), (await alice.patch(path, json=moved)).json())
    await booked(bob, gpus=2, gpu_type="h100")
    back = {"start": at().isoformat()}
    refused = [await alice.patch(path, json=back, params=params) for params in (DRY, {})]
    assert [response.status_code for response in refused] == [409, 409]
    assert _problem(refused[0]) == _problem(refused[1])


async def test_what_is_judged_at_the_commit_is_judged(alice: httpx.AsyncClient, runtime: Runtime) -> None:
    """That a booking covers what lies within it is a deferred constraint."""
    booking = await booked(alice, duration="PT3H")
    job = await submitted(alice, booking_id=booking["id"])
    await execute(
        runtime,
        "INSERT INTO allocations (reservation_id, gpu_id, attempt, rank, booking_id, during, held, created_at) "
        "SELECT :job, gpu_id, 1, 0, reservation_id, during, false, now() FROM allocations "
        "WHERE reservation_id = :booking",
        job=job["id"],
        booking=booking["id"],
    )
    shorter = (
        "UPDATE allocations SET during = tstzrange(lower(during), upper(during) - interval '1 hour') "
        "WHERE reservation_id = :id"
    )

    async def shorten(uow: UnitOfWork) -> None:
        await sql(uow, shorter, id=booking["id"])

    with pytest.raises(IntegrityError, match="that would lie outside"):
        await rehearse(runtime.uow, shorten)

"""Maintenance windows and the waitlist over REST."""

from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from api_service.metrics.metrics import ApiMetrics
from reservation_core.domain.bookings.changes import DecidedBookingChange
from reservation_core.domain.changes import Record
from reservation_core.runtime.reading.reading import PrimaryReads
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.nodes.update_inventory import update_inventory

HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
async def nine(runtime: Runtime, app: FastAPI) -> datetime:
    """Tomorrow at some full hour; the node's four cards are known."""
    await update_inventory(runtime.uow, runtime.cluster, runtime.clock)
    return runtime.clock.now().replace(minute=0, second=0, microsecond=0) + 24 * HOUR


@pytest.fixture
async def node(root: httpx.AsyncClient) -> str:
    """The node's name."""
    name: str = (await root.get("/v1/nodes")).json()["items"][0]["name"]
    return name


async def booked(client: httpx.AsyncClient, start: datetime, **fields: Any) -> dict[str, Any]:
    body = {"gpus": 4, "start": start.isoformat(), "duration": "PT4H", **fields}
    response = await client.post("/v1/bookings", json=body)
    assert response.status_code in (201, 202), response.text
    answer: dict[str, Any] = response.json()
    return answer


def wanted(node: str, start: datetime, **fields: Any) -> dict[str, Any]:
    return {"node": node, "start": start.isoformat(), "duration": "PT2H", "reason": "New fans.", **fields}


async def test_what_is_declined_goes_to_the_next_at_once(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, root: httpx.AsyncClient, nine: datetime
) -> None:
    full = await booked(root, nine)
    first = await booked(alice, nine, wait=True)
    second = await booked(bob, nine, gpus=2, wait=True, auto_accept=True)
    assert (first["status"], second["status"]) == ("waiting", "waiting")
    assert (await alice.post(f"/v1/bookings/{first['id']}/accept")).json()["type"].endswith("not_offered")
    assert (await root.delete(f"/v1/bookings/{full['id']}")).status_code == 200
    offer = (await alice.get(f"/v1/bookings/{first['id']}")).json()
    assert (offer["status"], offer["reason"]["code"]) == ("offered", "offered")
    assert offer["offer_until"]
    assert (await bob.post(f"/v1/bookings/{first['id']}/accept")).status_code == 404
    answer = await alice.post(f"/v1/bookings/{first['id']}/decline", headers={"Idempotency-Key": "no"})
    assert (answer.status_code, answer.json()["reason"]["code"]) == (200, "declined")
    again = await alice.post(f"/v1/bookings/{first['id']}/decline", headers={"Idempotency-Key": "no"})
    assert (again.json(), again.headers["Idempotency-Replayed"]) == (answer.json(), "true")
    assert (await bob.get(f"/v1/bookings/{second['id']}")).json()["status"] == "confirmed"


async def test_an_offer_is_accepted_by_the_version_that_was_seen(
    alice: httpx.AsyncClient, root: httpx.AsyncClient, nine: datetime
) -> None:
    full = await booked(root, nine)
    waits = await booked(alice, nine, wait=True)
    await root.delete(f"/v1/bookings/{full['id']}")
    seen = await alice.get(f"/v1/bookings/{waits['id']}")
    stale = await alice.post(f"/v1/bookings/{waits['id']}/accept", headers={"If-Match": '"1"'})
    assert stale.status_code == 412
    answer = await alice.post(f"/v1/bookings/{waits['id']}/accept", headers={"If-Match": seen.headers["ETag"]})
    assert (answer.status_code, answer.json()["status"]) == (200, "confirmed")
    assert len(answer.json()["allocations"][0]["gpu_indices"]) == 4
    assert (await alice.post(f"/v1/bookings/{waits['id']}/accept")).status_code == 200
    late = await alice.post(f"/v1/bookings/{waits['id']}/decline")
    assert (late.status_code, late.json()["type"]) == (409, "urn:gpu-dev:problem:not_offered")


async def test_maintenance_is_tried_planned_listed_and_ended(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, root: httpx.AsyncClient, node: str, nine: datetime
) -> None:
    under = await booked(alice, nine)
    dry = await root.post("/v1/maintenance", json=wanted(node, nine, dry_run=True))
    assert (dry.status_code, dry.json()["id"], dry.json()["status"]) == (200, None, None)
    assert [
        (affected_use["id"], affected_use["fate"], affected_use["user"]) for affected_use in dry.json()["affected"]
    ] == [(under["id"], "begins_later", "alice")]
    assert (await alice.get(f"/v1/bookings/{under['id']}")).json()["status"] == "confirmed"
    key = {"Idempotency-Key": "fans"}
    answer = await root.post("/v1/maintenance", json=wanted(node, nine), headers=key)
    assert answer.status_code == 201, answer.text
    window = answer.json()
    assert answer.headers["Location"] == f"/v1/maintenance/{window['id']}"
    assert (window["status"], window["created_by"], window["reason"]) == ("confirmed", "root", "New fans.")
    assert window["gpus"] == [{"node": node, "index": index} for index in range(4)]
    repeated = await root.post("/v1/maintenance", json=wanted(node, nine), headers=key)
    assert (repeated.json(), repeated.headers["Idempotency-Replayed"]) == (window, "true")
    other = await root.post("/v1/maintenance", json=wanted(node, nine + HOUR))
    assert (other.status_code, other.json()["type"]) == (409, "urn:gpu-dev:problem:calendar_conflict")
    gone = (await alice.get(f"/v1/bookings/{under['id']}")).json()
    assert (gone["status"], gone["start"], gone["end"]) == ("confirmed", window["end"], under["end"])
    assert window["affected"][0]["resumes_at"] == window["end"]
    assert "New fans." in gone["reason"]["detail"]
    # Everybody sees when; whom it affects only those themselves.
    for client, affected in ((alice, 1), (bob, 0), (root, 1)):
        [shown] = (await client.get("/v1/maintenance?open=true")).json()["items"]
        assert (shown["id"], len(shown["affected"])) == (window["id"], affected)
    refused = await alice.post("/v1/bookings", json={"gpus": 1, "start": nine.isoformat(), "duration": "PT1H"})
    assert refused.status_code == 409
    ended = await root.delete(f"/v1/maintenance/{window['id']}")
    assert (ended.status_code, ended.json()["status"]) == (200, "cancelled")
    assert (await root.delete(f"/v1/maintenance/{window['id']}")).status_code == 409
    assert (await root.get("/v1/maintenance?open=true")).json()["items"] == []
    # What was put off for it stays so, until its booker has it otherwise.
    earlier = await alice.patch(f"/v1/bookings/{under['id']}", json={"start": nine.isoformat(), "end": under["end"]})
    assert (earlier.status_code, earlier.json()["start"]) == (200, under["start"])


async def test_a_window_now_shows_on_its_cards(root: httpx.AsyncClient, node: str) -> None:
    body = {"gpus": [{"node": node, "index": 1}], "duration": "PT2H", "reason": "A loose cable."}
    window = (await root.post("/v1/maintenance", json=body)).json()
    assert window["status"] == "active"
    cards = (await root.get("/v1/gpus")).json()["items"]
    assert [card["state"] for card in cards] == ["free", "maintenance", "free", "free"]
    assert cards[1]["free_at"] == window["end"]
    assert 'state="maintenance"} 1.0' in (await root.get("/metrics")).text
    assert (await root.delete(f"/v1/maintenance/{window['id']}")).json()["status"] == "ended"
    cards = (await root.get("/v1/gpus")).json()["items"]
    assert [card["state"] for card in cards] == ["free"] * 4


async def test_what_is_refused(alice: httpx.AsyncClient, root: httpx.AsyncClient, node: str, nine: datetime) -> None:
    assert (await alice.post("/v1/maintenance", json=wanted(node, nine))).status_code == 403
    assert (await alice.post("/v1/maintenance", json=wanted(node, nine, dry_run=True))).status_code == 403
    assert (await alice.delete("/v1/maintenance/mnt-1")).status_code == 403
    assert (await root.delete("/v1/maintenance/mnt-1")).status_code == 404
    assert (await root.get("/v1/maintenance/mnt-1")).status_code == 404
    assert (await root.post("/v1/maintenance", json=wanted("nowhere", nine))).status_code == 404
    for fields in (
        {"nodes": [node]},
        {"node": None},
        {"end": nine.isoformat()},
        {"duration": None},
        {"start": (nine + timedelta(seconds=1)).isoformat()},
        {"start": "2020-01-01T00:00:00Z"},
        {"start": "2030-01-01T00:00:00"},
        {"duration": "PT30S"},
        {"duration": "P91D"},
        {"reason": ""},
        {"reason": None},
        {"gpus": [{"node": node, "index": -1}], "node": None},
    ):
        answer = await root.post("/v1/maintenance", json={**wanted(node, nine), **fields})
        assert answer.status_code == 422, (fields, answer.text)


async def test_metrics_count_bookings_and_what_happens_to_them(
    alice: httpx.AsyncClient, runtime: Runtime, nine: datetime
) -> None:
    metrics = ApiMetrics(PrimaryReads(runtime.uow), runtime.clock, settled=timedelta(seconds=-1))
    await metrics.text()
    made = await booked(alice, nine)
    await booked(alice, nine, wait=True)
    async with runtime.uow() as uow:
        row = (await uow.bookings.lock([made["id"]]))[made["id"]]
        missed = Record("start_promise_missed", data={"late": ["job-1"]})
        await uow.booking_life.apply([DecidedBookingChange(row, row, (missed,), await uow.now())])
    metrics._fresh_until = 0
    text = (await metrics.text()).decode()
    assert 'gpu_dev_bookings{status="confirmed"} 1.0' in text
    assert 'gpu_dev_bookings{status="waiting"} 1.0' in text
    assert 'gpu_dev_bookings{status="active"} 0.0' in text
    assert 'gpu_dev_calendar_events_total{kind="booking_waitlisted"} 1.0' in text
    assert 'gpu_dev_start_promises_missed_total{of="booking"} 1.0' in text
    metrics._fresh_until = 0
    assert 'gpu_dev_calendar_events_total{kind="booking_waitlisted"} 1.0' in (await metrics.text()).decode()

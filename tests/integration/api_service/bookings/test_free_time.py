"""Free slots and availability over REST."""

from datetime import UTC, datetime

import httpx
import pytest

from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings.calendars import add_nodes, at, booked, execute, said


@pytest.fixture(autouse=True)
async def lab(runtime: Runtime) -> None:
    """`a` and `c` have two h100 each, `b` one t4."""
    await add_nodes(runtime, a=("h100", 2), b=("t4", 1), c=("h100", 2))


async def test_slots_are_ranges_of_starts(alice: httpx.AsyncClient) -> None:
    await booked(alice, at(2), gpu_type="t4", duration="PT2H")
    params = {"gpus": 1, "gpu_type": "t4", "duration": 3600, "from": at(0).isoformat(), "to": at(8).isoformat()}
    found = (await alice.get("/v1/bookings/slots", params=params)).json()
    assert found["items"] == [
        {"gpu_type": "t4", "start": said(at(0)), "end": said(at(1)), "latest_start": said(at(1))},
        {"gpu_type": "t4", "start": said(at(4)), "end": said(at(5)), "latest_start": said(at(7))},
    ]
    assert found["next_cursor"] is None
    page = (await alice.get("/v1/bookings/slots", params={**params, "limit": 1})).json()
    assert page["items"] == found["items"][:1]
    rest = (await alice.get("/v1/bookings/slots", params={**params, "cursor": page["next_cursor"]})).json()
    assert rest["items"] == found["items"][1:]
    # An offered slot can be booked.
    for slot in found["items"]:
        await booked(alice, datetime.fromisoformat(slot["latest_start"]), gpu_type="t4")


async def test_slots_of_gangs_types_and_pins(alice: httpx.AsyncClient) -> None:
    await booked(alice, at(2), gpu_type="h100", gpus=2, node="c")
    params = {"gpus": 2, "nodes": 2, "duration": "PT1H", "from": at(1).isoformat(), "to": at(5).isoformat()}
    found = (await alice.get("/v1/bookings/slots", params=params)).json()["items"]
    assert [(slot["gpu_type"], slot["start"]) for slot in found] == [("h100", said(at(1))), ("h100", said(at(3)))]
    pinned = {key: value for key, value in params.items() if key != "nodes"} | {"node": "c"}
    assert len((await alice.get("/v1/bookings/slots", params=pinned)).json()["items"]) == 2
    any_type = {"gpus": 1, "duration": "PT1H", "from": at(1).isoformat(), "to": at(3).isoformat()}
    found = (await alice.get("/v1/bookings/slots", params=any_type)).json()["items"]
    assert [slot["gpu_type"] for slot in found] == ["h100", "t4"]


async def test_slots_begin_in_the_next_minute_at_the_earliest(alice: httpx.AsyncClient) -> None:
    asked_at = datetime.now(UTC)
    found = (await alice.get("/v1/bookings/slots", params={"gpus": 1, "duration": "PT1H"})).json()["items"]
    assert datetime.fromisoformat(found[0]["start"]) > asked_at
    past = {"gpus": 1, "duration": "PT1H", "from": at(-9).isoformat(), "to": at(-5).isoformat()}
    assert (await alice.get("/v1/bookings/slots", params=past)).json()["items"] == []


async def test_availability_counts_cards_that_are_free_for_the_whole_step(
    alice: httpx.AsyncClient, runtime: Runtime
) -> None:
    await booked(alice, at(1, 30), gpu_type="h100", gpus=2, duration="PT1H")
    await booked(alice, at(3), gpu_type="h100")
    window = {"from": at(1).isoformat(), "to": at(5).isoformat()}
    found = (await alice.get("/v1/availability", params=window)).json()
    assert (found["start"], found["end"], found["step"]) == (said(at(1)), said(at(5)), "PT1H")
    assert found["items"] == [
        {"gpu_type": "h100", "gpus": 4, "free": [2, 2, 3, 4]},
        {"gpu_type": "t4", "gpus": 1, "free": [1, 1, 1, 1]},
    ]
    # The slot of a waiting job is nobody else's.
    await execute(
        runtime,
        "WITH r AS (INSERT INTO reservations (id, kind, user_id, status, reason_code, reason, gpus, nodes, duration, "
        "priority, workload, created_at, changed_at) SELECT 'job-slot', 'job', min(id), 'queued', 'submitted', 'x', 1, "
        "1, interval '1 hour', 0, '{}', now(), now() FROM users RETURNING id) "
        "INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, planned, created_at) "
        "SELECT r.id, 1, g.id, 0, tstzrange(:start, :end), false, true, now() FROM r, gpus g WHERE g.gpu_type = 't4'",
        start=at(2),
        end=at(3),
    )
    counts = {
        free_type["gpu_type"]: free_type["free"]
        for free_type in (await alice.get("/v1/availability", params=window)).json()["items"]
    }
    assert counts["t4"] == [1, 0, 1, 1]
    refused = await alice.post(
        "/v1/bookings", json={"gpus": 1, "gpu_type": "t4", "start": at(2).isoformat(), "duration": 60}
    )
    assert refused.status_code == 409


async def test_bounds(alice: httpx.AsyncClient) -> None:
    for path, params in (
        ("slots", {"gpus": 1}),
        ("slots", {"gpus": 0, "duration": 60}),
        ("slots", {"gpus": 1, "duration": 90}),
        ("slots", {"gpus": 1, "duration": 60, "from": "2030-01-01T00:00"}),
        ("slots", {"gpus": 1, "duration": 60, "from": "yesterday"}),
        ("slots", {"gpus": 1, "duration": 60, "from": "1893456000"}),
        ("slots", {"gpus": 1, "duration": 60, "from": at(5).isoformat(), "to": at(4).isoformat()}),
        ("slots", {"gpus": 1, "duration": 60, "from": at(5).isoformat(), "to": at(5 + 24 * 401).isoformat()}),
        ("slots", {"gpus": 1, "duration": 60, "nodes": 2, "node": "a"}),
        ("slots", {"gpus": 1, "duration": 60, "colour": "red"}),
        ("availability", {"step": 30}),
        ("availability", {"step": 90}),
        ("availability", {"step": 60, "to": at(24 * 30).isoformat()}),
        ("availability", {"to": at(-24).isoformat()}),
    ):
        address = "/v1/availability" if path == "availability" else f"/v1/bookings/{path}"
        response = await alice.get(address, params=params)
        assert response.status_code == 422, (path, params, response.text)

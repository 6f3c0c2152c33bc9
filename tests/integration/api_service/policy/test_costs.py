"""Costs over REST: a price is a rule; usage and verdicts show what comes of it."""

import csv
import io
from typing import Any

import httpx
import pytest

from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings.calendars import add_nodes, asked, at, booked, execute, said
from tests.integration.api_service.policy.rules_set import earlier, put

LENGTH = {"duration": "PT8H"}


@pytest.fixture(autouse=True)
async def lab(runtime: Runtime) -> None:
    await add_nodes(runtime, node1=("h100", 4), node2=("t4", 4))


async def verdict(client: httpx.AsyncClient, **asked: Any) -> dict[str, Any]:
    answer = await client.post("/v1/policy/explain", json={**LENGTH, **asked})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_price_is_stored_as_it_is_written_and_changed_on_record(
    root: httpx.AsyncClient, runtime: Runtime
) -> None:
    stored = await put(root, "gpu_type:h100", cost_per_gpu_hour="2.50 EUR", max_gpus=4)
    assert stored["rules"]["cost_per_gpu_hour"] == "2.50 EUR"  # type: ignore[index]
    assert (await root.get("/v1/policy/gpu_type:h100")).json()["rules"]["cost_per_gpu_hour"] == "2.50 EUR"
    [event] = (await execute(runtime, "SELECT data FROM events WHERE kind = 'policy_changed'")).all()
    assert event.data["after"] == {"max_gpus": 4, "cost_per_gpu_hour": "2.50 EUR"}


@pytest.mark.parametrize(
    "price", [2.5, "2.50", "EUR", "-1 EUR", "1000000 EUR", "0.0000001 EUR", "1  EUR", "1 E R", "1 EUR\n", "unlimited"]
)
async def test_what_is_no_price_is_refused(root: httpx.AsyncClient, price: object) -> None:
    assert (await root.put("/v1/policy/default", json={"cost_per_gpu_hour": price})).status_code == 422


async def test_usage_shows_costs_at_the_prices_of_now(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, root: httpx.AsyncClient, runtime: Runtime
) -> None:
    first = (await booked(alice, at(1), gpus=2, gpu_type="h100"))["id"]
    second = (await booked(bob, at(1), gpu_type="t4"))["id"]
    await earlier(runtime, 5, first, second)
    week = {"from": said(at(-200)), "to": said(at(10))}
    before = (await root.get("/v1/usage", params=week)).json()
    assert before["total"]["costs"] == []
    assert "cost" not in (await root.get("/v1/usage", params={**week, "format": "csv"})).text

    await put(root, "gpu_type:h100", cost_per_gpu_hour="0.35 EUR")
    await put(root, "gpu_type:t4", cost_per_gpu_hour="3 credits")
    report = (await root.get("/v1/usage", params={**week, "limit": 1})).json()
    assert [(line["key"], line["costs"]) for line in report["items"]] == [
        ("alice", [{"amount": "0.70", "unit": "EUR"}])
    ]
    assert report["total"]["costs"] == [{"amount": "0.70", "unit": "EUR"}, {"amount": "3.00", "unit": "credits"}]
    assert report["total"]["held_gpu_s"] == before["total"]["held_gpu_s"]
    lines = list(csv.DictReader(io.StringIO((await root.get("/v1/usage", params={**week, "format": "csv"})).text)))
    assert [(line["user"], line["cost_EUR"], line["cost_credits"]) for line in lines] == [
        ("alice", "0.70", "0.00"),
        ("bob", "0.00", "3.00"),
    ]

    await put(root, "gpu_type:h100", cost_per_gpu_hour="1 EUR")
    own = (await alice.get("/v1/usage", params={**week, "by": "gpu_type"})).json()
    assert [(line["key"], line["costs"]) for line in own["items"]] == [("h100", [{"amount": "2.00", "unit": "EUR"}])]


async def test_a_verdict_says_what_the_whole_duration_costs(alice: httpx.AsyncClient, root: httpx.AsyncClient) -> None:
    assert (await verdict(alice, gpus=2, gpu_type="h100"))["cost"] is None
    await put(root, "default", cost_per_gpu_hour="1 EUR")
    assert (await verdict(alice, gpus=2))["cost"] == {"amount": "16.00", "unit": "EUR"}
    await put(root, "gpu_type:h100", cost_per_gpu_hour="2.50 EUR")
    found = await verdict(alice, gpus=2, nodes=2, gpu_type="h100")
    assert found["cost"] == {"amount": "80.00", "unit": "EUR"}
    assert {"rule": "cost_per_gpu_hour", "value": "2.50 EUR", "used": None, "scope": "gpu_type:h100"} in found["limits"]
    assert (await verdict(alice, gpus=1, gpu_type="t4", start=said(at(1))))["cost"]["amount"] == "8.00"
    # It may get either type, and they differ.
    assert (await verdict(alice, gpus=2))["cost"] is None
    # The booking's time is the booking's cost.
    booking = (await booked(alice, at(1), gpus=2, gpu_type="h100"))["id"]
    within = await verdict(alice, gpus=1, gpu_type="h100", booking_id=booking, duration="PT1M")
    assert within["cost"] is None
    assert within["limits"] == []


async def test_the_verdict_on_a_booking_says_what_it_costs_and_on_a_series_what_all_dates_do(
    alice: httpx.AsyncClient, root: httpx.AsyncClient
) -> None:
    dry = {"dry_run": "true"}
    four: dict[str, Any] = {"recurrence": {"rrule": "FREQ=DAILY;COUNT=4"}}
    free = (await alice.post("/v1/bookings", json=asked(gpu_type="t4", **four), params=dry)).json()
    assert ([date["cost"] for date in free["items"]], free["costs"]) == ([None] * 4, [])
    await put(root, "gpu_type:h100", cost_per_gpu_hour="2.50 EUR")
    await put(root, "gpu_type:t4", cost_per_gpu_hour="3 credits")
    request = asked(gpus=2, gpu_type="h100", duration="PT8H", **four)
    found = (await alice.post("/v1/bookings", json=request, params=dry)).json()
    assert [date["cost"] for date in found["items"]] == [{"amount": "40.00", "unit": "EUR"}] * 4
    assert found["costs"] == [{"amount": "160.00", "unit": "EUR"}]
    # On the first two dates no h100 is free.
    await booked(alice, at(1), gpus=4, gpu_type="h100", duration="PT30H")
    found = (await alice.post("/v1/bookings", json=asked(gpus=1, **four), params=dry)).json()
    assert found["costs"] == [{"amount": "5.00", "unit": "EUR"}, {"amount": "6.00", "unit": "credits"}]
    made = (await booked(alice, at(1), gpus=1, gpu_type="t4"))["id"]
    longer = await alice.patch(f"/v1/bookings/{made}", json={"duration": "PT10H"}, params=dry)
    assert longer.json()["cost"] == {"amount": "30.00", "unit": "credits"}
    waits = asked(at(1), gpus=4, wait=True)
    assert (await alice.post("/v1/bookings", json=waits, params=dry)).json()["cost"] is None

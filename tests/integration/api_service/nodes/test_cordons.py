"""Cordons over REST: what they keep away, and what they leave alone."""

import httpx
import pytest

from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings.calendars import add_nodes, asked, at, booked


@pytest.fixture(autouse=True)
async def lab(runtime: Runtime) -> None:
    """Two types: `a` has two h100, `b` one t4."""
    await add_nodes(runtime, a=("h100", 2), b=("t4", 1))


async def test_bookings_there_stay_and_none_is_made(
    root: httpx.AsyncClient, alice: httpx.AsyncClient, runtime: Runtime
) -> None:
    booking = await booked(alice, gpu_type="h100")
    answer = await root.post("/v1/nodes/a/cordon", json={"reason": "A fan is loud."})
    assert answer.status_code == 200, answer.text
    node = answer.json()
    assert (node["cordoned_by"], node["cordon_reason"], node["schedulable"], node["free"]) == (
        "root", "A fan is loud.", True, 0,
    )  # fmt: skip
    assert node["detail"].startswith("Cordoned by an administrator (root: A fan is loud.) at ")
    assert (await alice.get(f"/v1/bookings/{booking['id']}")).json() == booking
    for path, start in (("/v1/bookings", at()), (f"/v1/bookings/{booking['id']}", at(9))):
        method = "POST" if path.endswith("bookings") else "PATCH"
        body = asked(start, gpu_type="h100") if method == "POST" else {"start": start.isoformat()}
        refused = await alice.request(method, path, json=body)
        assert refused.status_code == 409
        [rule] = refused.json()["broken_rules"]
        assert (rule["code"], "cordoned by an administrator: a" in rule["detail"]) == ("node_unavailable", True)
        assert "nearest_slots" not in refused.json()
    assert (await booked(alice))["gpu_type"] == "t4"
    slots = await alice.get("/v1/bookings/slots", params={"gpus": 1, "duration": "PT1H", "gpu_type": "h100"})
    assert slots.json()["items"] == []
    free = (await alice.get("/v1/availability", params={"from": at().isoformat(), "to": at(2).isoformat()})).json()
    assert {free_type["gpu_type"]: free_type["free"] for free_type in free["items"]}["h100"] == [0]
    shorter = await alice.patch(f"/v1/bookings/{booking['id']}", json={"duration": "PT30M"})
    assert (shorter.status_code, shorter.json()["allocations"]) == (200, booking["allocations"])
    assert (await root.post("/v1/nodes/a/uncordon")).json()["cordoned_at"] is None
    assert (await booked(alice, gpu_type="h100"))["allocations"][0]["node"] == "a"


async def test_a_cordon_can_be_said_again_and_has_bounds(root: httpx.AsyncClient, alice: httpx.AsyncClient) -> None:
    key = {"Idempotency-Key": "once"}
    first = await root.post("/v1/nodes/a/cordon", headers=key)
    assert (first.status_code, first.json()["cordon_reason"]) == (200, None)
    assert (await root.post("/v1/nodes/a/cordon", headers=key)).headers["Idempotency-Replayed"] == "true"
    reasoned = (await root.post("/v1/nodes/a/cordon", json={"reason": "x" * 200})).json()
    assert (reasoned["cordon_reason"], reasoned["cordoned_at"]) == ("x" * 200, first.json()["cordoned_at"])
    assert (await root.post("/v1/nodes/a/cordon")).json() == reasoned
    for wrong in ({"reason": ""}, {"reason": "x" * 201}, {"reason": 1}, {"why": "x"}):
        assert (await root.post("/v1/nodes/a/cordon", json=wrong)).status_code == 422, wrong
    assert (await root.post("/v1/nodes/z/cordon")).status_code == 404
    assert (await alice.post("/v1/nodes/a/uncordon")).status_code == 403
    for _ in range(2):
        assert (await root.post("/v1/nodes/a/uncordon")).status_code == 200

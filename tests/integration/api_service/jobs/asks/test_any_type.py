"""Requests that name no type of GPU: each type's own rules hold for them, and explaining says the same as asking."""

import httpx
import pytest

from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings.calendars import add_nodes, asked, at
from tests.integration.api_service.callers import submitted


@pytest.fixture(autouse=True)
async def lab(runtime: Runtime) -> None:
    """Two types: `a` has four h100, `b` two t4."""
    await add_nodes(runtime, a=("h100", 4), b=("t4", 2))


async def put(root: httpx.AsyncClient, scope: str, **rules: object) -> None:
    response = await root.put(f"/v1/policy/{scope}", json=rules)
    assert response.status_code == 200, response.text


def broken(answer: httpx.Response) -> list[str]:
    return [rule["code"] for rule in answer.json()["broken_rules"]]


async def explained(client: httpx.AsyncClient, body: dict[str, object]) -> httpx.Response:
    answer = await client.post("/v1/policy/explain", json=body)
    assert answer.status_code == 200, answer.text
    return answer


async def test_a_job_for_any_type_does_not_get_round_a_types_longest_duration_and_priority(
    alice: httpx.AsyncClient, root: httpx.AsyncClient
) -> None:
    await put(root, "default", priority=5)
    await put(root, "gpu_type:t4", max_duration="PT10M", priority=0)
    # Whichever card is free first is given to it: it might be a t4.
    job = {"gpus": 1, "duration": "PT1H", "priority": 3, "workload": {}}
    refused = await alice.post("/v1/jobs", json=job)
    assert (refused.status_code, broken(refused)) == (409, ["max_duration", "priority"])
    assert "name another type" in refused.json()["broken_rules"][0]["detail"]
    assert broken(await explained(alice, job)) == ["max_duration", "priority"]
    assert broken(await explained(alice, {**job, "gpu_type": "h100"})) == []
    await submitted(alice, gpus=1, duration="PT1H", priority=3, gpu_type="h100")
    # Nor by asking for little and extending it while it waits.
    short = await submitted(alice, gpus=1, duration="PT10M")
    longer = await alice.post(f"/v1/jobs/{short['id']}/extend", json={"by": "PT1M"})
    assert (longer.status_code, broken(longer)) == (409, ["max_duration"])


async def test_a_booking_of_any_type_is_explained_as_it_is_booked(
    alice: httpx.AsyncClient, root: httpx.AsyncClient
) -> None:
    await put(root, "default", max_gpus=4)
    await put(root, "gpu_type:t4", max_gpus=1)
    await put(root, "gpu_type:h100", max_gpus=1, max_duration="PT30M")
    wish = asked(at(3), gpus=2)
    refused = await alice.post("/v1/bookings", json=wish)
    assert (refused.status_code, broken(refused)) == (409, ["max_gpus"])
    verdict = await explained(alice, wish)
    assert (verdict.json()["allowed"], broken(verdict)) == (False, ["max_gpus"])
    detail = verdict.json()["broken_rules"][0]["detail"]
    assert refused.json()["broken_rules"][0]["detail"] == f"t4: {detail}"
    # One type's rules have it: that is enough.
    await put(root, "gpu_type:h100", max_gpus=2)
    assert broken(await explained(alice, wish)) == []
    assert (await alice.post("/v1/bookings", json=wish)).status_code == 201


async def test_a_wider_rule_of_one_type_counts_for_a_booking_of_any(
    alice: httpx.AsyncClient, root: httpx.AsyncClient
) -> None:
    await put(root, "default", max_gpus=1)
    await put(root, "gpu_type:h100", max_gpus=4)
    wish = asked(at(3), gpus=2)
    verdict = await explained(alice, wish)
    assert (verdict.json()["allowed"], broken(verdict)) == (True, [])
    assert verdict.json()["limits"][0]["scope"] == "gpu_type:h100"
    assert (await alice.post("/v1/bookings", json=wish)).json()["gpu_type"] == "h100"

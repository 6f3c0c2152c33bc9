"""CPUs and memory over REST: their bounds, and how they are shown."""

from typing import Any

import httpx
import pytest

from reservation_core.runtime.wiring import Runtime
from tests.database.sql import sql
from tests.integration.api_service.bookings.calendars import add_nodes, asked, at
from tests.integration.api_service.callers import JOB, submitted


async def test_they_are_shown_with_the_job_and_its_spec(alice: httpx.AsyncClient) -> None:
    accepted = await submitted(alice, resources={"cpus": 2.5, "memory": "64Gi", "shm": 2**30})
    asked = {"cpus": 2.5, "memory": 64 * 2**30, "shm": 2**30}
    assert accepted["resources"] == asked
    assert (await alice.get(f"/v1/jobs/{accepted['id']}")).json()["resources"] == asked
    spec = (await alice.get(f"/v1/jobs/{accepted['id']}/spec")).json()
    assert spec["resources"] == asked
    again = await alice.post("/v1/jobs", json=spec)
    assert (again.status_code, again.json()["resources"]) == (202, asked)
    only = await submitted(alice, resources={"memory": "1.5G"})
    assert only["resources"] == {"cpus": None, "memory": 1_500_000_000, "shm": None}
    assert "resources" not in await submitted(alice)


@pytest.mark.parametrize(
    ("resources", "named"),
    [
        ({"cpus": 0}, "resources.cpus"),
        ({"cpus": -1}, "resources.cpus"),
        ({"cpus": 10_001}, "resources.cpus"),
        ({"cpus": 0.0001}, "resources.cpus"),
        ({"cpus": "2"}, "resources.cpus"),
        ({"memory": "64  Gi"}, "resources.memory"),
        ({"memory": 0}, "resources.memory"),
        ({"memory": 1.5}, "resources.memory"),
        ({"memory": True}, "resources.memory"),
        ({"memory": 2**51}, "resources.memory"),
        ({"memory": "2Gi", "shm": "3Gi"}, "shm"),
        ({"gpus": 1}, "resources.gpus"),
        ({}, "leave `resources` out"),
        (3, "resources"),
    ],
)
async def test_what_is_out_of_bounds_is_refused_by_name(alice: httpx.AsyncClient, resources: Any, named: str) -> None:
    refused = await alice.post("/v1/jobs", json={**JOB, "resources": resources})
    assert refused.status_code == 422
    assert named in refused.text
    assert (await alice.get("/v1/jobs")).json()["items"] == []


async def test_a_booking_shows_its_share_to_its_owner(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, runtime: Runtime
) -> None:
    await add_nodes(runtime, a=("h100", 4), b=("h100", 2))
    async with runtime.uow() as uow:
        await sql(uow, "UPDATE nodes SET cpu_milli = 31001, memory_bytes = 2 ^ 36 + 5")
    wanted = asked(at(1), gpus=2, nodes=2)
    share = {"cpus": 15.5, "memory": 2**35 + 2, "shm": None}  # `a` is the smaller one for a GPU
    verdict = (await alice.post("/v1/bookings?dry_run=true", json=wanted)).json()
    assert verdict["resources"] == share
    made = (await alice.post("/v1/bookings", json=wanted)).json()
    assert made["resources"] == share
    assert (await alice.get(f"/v1/bookings/{made['id']}")).json() == made
    [listed] = (await alice.get("/v1/bookings")).json()["items"]
    [others] = (await bob.get("/v1/bookings")).json()["items"]
    assert (listed["resources"], others["resources"]) == (share, None)
    async with runtime.uow() as uow:
        await sql(uow, "UPDATE nodes SET cpu_milli = NULL WHERE name = 'b'")
    shown = (await alice.get(f"/v1/bookings/{made['id']}")).json()
    assert shown["resources"] == share | {"cpus": None}
    async with runtime.uow() as uow:
        await sql(uow, "UPDATE nodes SET memory_bytes = NULL WHERE name = 'a'")
    assert (await alice.get(f"/v1/bookings/{made['id']}")).json()["resources"] is None


async def test_a_job_in_a_booking_may_ask_for_the_share_of_its_gpus(alice: httpx.AsyncClient, runtime: Runtime) -> None:
    await add_nodes(runtime, a=("h100", 4))
    async with runtime.uow() as uow:
        await sql(uow, "UPDATE nodes SET cpu_milli = 31001, memory_bytes = 2 ^ 36 + 5")
    booking = (await alice.post("/v1/bookings", json=asked(at(1), gpus=3))).json()["id"]
    most = {"cpus": 15.5, "memory": "32Gi"}
    within = {**JOB, "gpus": 2, "booking_id": booking, "resources": most}
    accepted = await alice.post("/v1/jobs", json=within)
    assert (accepted.status_code, accepted.json()["resources"]["cpus"]) == (202, 15.5), accepted.text
    assert (await alice.get(f"/v1/jobs/{accepted.json()['id']}")).json()["resources"]["memory"] == 2**35
    for path in ("/v1/jobs", "/v1/jobs?dry_run=true"):
        for more, named, limit in (
            ({"cpus": 15.501}, "resources.cpus", "at most 15.5 CPUs"),
            ({"memory": 2**35 + 3}, "resources.memory", "at most 32Gi"),
            ({"shm": "33Gi"}, "resources.shm", "at most 32Gi"),
        ):
            refused = await alice.post(path, json={**within, "resources": more})
            problem = refused.json()
            code = problem["type"].removeprefix("urn:gpu-dev:problem:")
            assert (refused.status_code, code) == (422, "beyond_booked_share"), refused.text
            assert limit in problem["detail"]
            assert [rule["detail"].partition(":")[0] for rule in problem["broken_rules"]] == [named]
    both = await alice.post("/v1/jobs", json={**within, "resources": {"cpus": 16, "memory": "33Gi"}})
    assert len(both.json()["broken_rules"]) == 2
    # The same request under a key is refused again, and the key is free afterwards.
    keyed = {"Idempotency-Key": "share"}
    for _ in range(2):
        refused = await alice.post("/v1/jobs", json={**within, "resources": {"cpus": 16}}, headers=keyed)
        assert refused.status_code == 422, refused.text
    assert (await alice.post("/v1/jobs", json=within, headers=keyed)).status_code == 202
    explained = await alice.post("/v1/policy/explain", json={**within, "resources": {"cpus": 16}})
    assert explained.json()["verdict"] == "refused", explained.text
    assert "resources.cpus" not in explained.text
    assert "at most 15.5 CPUs" in explained.text

"""CPUs and memory over REST: their bounds, and how they are shown."""

from typing import Any

import httpx
import pytest

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
        ({"memory": "64 Gi"}, "resources.memory"),
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


async def test_a_job_in_a_booking_asks_for_nothing_beside_gpus(alice: httpx.AsyncClient) -> None:
    refused = await alice.post("/v1/jobs", json={**JOB, "booking_id": "bkg-1", "resources": {"cpus": 1}})
    assert (refused.status_code, "has the share of its GPUs" in refused.text) == (422, True)


async def test_jobs_without_gpus_are_refused_plainly(alice: httpx.AsyncClient) -> None:
    refused = await alice.post("/v1/jobs", json={**JOB, "gpus": 0})
    assert (refused.status_code, "at least one GPU" in refused.text) == (422, True)

"""Jobs without GPUs over REST."""

from typing import Any

import httpx
import pytest

from reservation_core.runtime.wiring import Runtime
from tests.database.sql import sql
from tests.integration.api_service.bookings.calendars import add_nodes, asked, at
from tests.integration.api_service.callers import JOB, submitted

CPU_JOB = {**JOB, "gpus": 0}


async def keeps(runtime: Runtime, cpu_milli: int | None = 4000, memory_bytes: int | None = 2**34) -> None:
    await add_nodes(runtime, a=("h100", 4), b=("h100", 4))
    async with runtime.uow() as uow:
        await sql(
            uow,
            "UPDATE nodes SET spare_cpu_milli = :cpu, spare_memory_bytes = :memory WHERE name = 'a'",
            cpu=cpu_milli,
            memory=memory_bytes,
        )


async def test_it_has_a_cpu_and_two_gib_unless_it_says_otherwise(alice: httpx.AsyncClient, runtime: Runtime) -> None:
    await keeps(runtime)
    plain = await submitted(alice, gpus=0)
    assert (plain["gpus"], plain["gpu_type"]) == (0, None)
    assert plain["resources"] == {"cpus": 1, "memory": 2**31, "shm": None}
    more = await submitted(alice, gpus=0, resources={"cpus": 0.5, "shm": "3Gi"})
    assert more["resources"] == {"cpus": 0.5, "memory": 3 * 2**30, "shm": 3 * 2**30}
    shown = (await alice.get(f"/v1/jobs/{plain['id']}")).json()
    assert (shown["gpus"], shown["gpu_type"], shown["resources"]) == (0, None, plain["resources"])
    spec = (await alice.get(f"/v1/jobs/{plain['id']}/spec")).json()
    again = await alice.post("/v1/jobs", json=spec)
    assert again.status_code == 202, again.text
    queue = (await alice.get("/v1/queue")).json()
    assert [(total["gpu_type"], total["jobs"], total["gpus"]) for total in queue["totals"]] == [("cpu", 3, 0)]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"nodes": 2}, "nodes: a job without GPUs runs on one node"),
        ({"gpu_type": "h100"}, "gpu_type: a job without GPUs runs on any node"),
        ({"booking_id": "bkg-1"}, "booking_id: a booking is of GPUs"),
        ({"preemptible": True}, "preemptible: a job without GPUs"),
        ({"gpus": 1, "gpu_type": "cpu"}, "ask for 0 GPUs instead"),
        ({"gpus": -1}, "gpus"),
        ({"gpus": False}, "gpus"),
    ],
)
async def test_what_it_can_not_have_is_refused_by_name(
    alice: httpx.AsyncClient, runtime: Runtime, fields: dict[str, Any], named: str
) -> None:
    await keeps(runtime)
    refused = await alice.post("/v1/jobs", json={**CPU_JOB, **fields})
    assert (refused.status_code, named in refused.text) == (422, True), refused.text
    question = {name: value for name, value in {**CPU_JOB, **fields}.items() if name != "priority"}
    assert (await alice.post("/v1/policy/explain", json=question)).status_code == 422
    assert (await alice.get("/v1/jobs")).json()["items"] == []


async def test_more_than_any_node_keeps_is_refused_with_what_would_do(
    alice: httpx.AsyncClient, runtime: Runtime
) -> None:
    await keeps(runtime)
    keyed = {"Idempotency-Key": "once"}
    for asks in ({"cpus": 5}, {"memory": "17Gi"}):
        refused = await alice.post("/v1/jobs", json={**CPU_JOB, "resources": asks}, headers=keyed)
        assert (refused.status_code, refused.json()["type"].rpartition(":")[2]) == (422, "no_node_keeps_that")
        assert "The most is 4 CPUs and 16 GiB of memory (on a)." in refused.json()["detail"]
    dry = await alice.post("/v1/jobs?dry_run=true", json={**CPU_JOB, "resources": {"cpus": 5}})
    assert dry.status_code == 422
    explained = (await alice.post("/v1/policy/explain", json={**CPU_JOB, "resources": {"cpus": 5}})).json()
    assert (explained["verdict"], explained["reasons"][0]["code"]) == ("refused", "no_node_keeps_that")
    assert (await alice.post("/v1/jobs", json=CPU_JOB, headers=keyed)).status_code == 202


@pytest.mark.parametrize("kept", [None, 0])
async def test_where_nothing_is_kept_the_setting_is_named(
    alice: httpx.AsyncClient, runtime: Runtime, kept: int | None
) -> None:
    await keeps(runtime, kept, kept)
    for call in ("/v1/jobs", "/v1/jobs?dry_run=true"):
        refused = await alice.post(call, json=CPU_JOB)
        assert (refused.status_code, refused.json()["type"].rpartition(":")[2]) == (422, "no_node_keeps_that")
        assert refused.json()["detail"] == (
            "A job without GPUs can't run here: no node keeps CPUs and memory for such jobs. Ask for 1 GPU, or ask an "
            "administrator to set GPU_DEV_CPU_JOB_SHARE."
        )


async def test_a_dry_run_and_an_explanation_say_when_it_starts(alice: httpx.AsyncClient, runtime: Runtime) -> None:
    await keeps(runtime)
    for call in ("/v1/jobs?dry_run=true", "/v1/policy/explain"):
        answer = await alice.post(call, json=CPU_JOB)
        assert (answer.status_code, answer.json()["verdict"]) == (200, "starts_now"), answer.text


async def test_it_is_held_to_no_quota_but_to_the_longest_duration(
    alice: httpx.AsyncClient, root: httpx.AsyncClient, runtime: Runtime
) -> None:
    await keeps(runtime)
    rules = {"max_gpus": 0, "max_gpu_hours_per_week": 0, "max_duration": "PT2H"}
    assert (await root.put("/v1/policy/default", json=rules)).status_code in (200, 201)
    assert (await alice.post("/v1/jobs", json=JOB)).status_code == 409
    job = await submitted(alice, gpus=0, duration="PT2H")
    assert (await alice.post("/v1/jobs", json={**CPU_JOB, "duration": "PT3H"})).status_code == 409
    refused = await alice.post(f"/v1/jobs/{job['id']}/extend", json={"by": "PT1H"})
    assert refused.status_code == 409, refused.text


async def test_a_booking_has_gpus(alice: httpx.AsyncClient, runtime: Runtime) -> None:
    await keeps(runtime)
    assert (await alice.post("/v1/bookings", json=asked(at(1), gpus=0))).status_code == 422


async def test_nodes_say_what_they_keep(alice: httpx.AsyncClient, runtime: Runtime) -> None:
    await keeps(runtime)
    found = {node["name"]: node["cpu_jobs"] for node in (await alice.get("/v1/nodes")).json()["items"]}
    assert found == {
        "a": {"cpus": 4, "cpus_free": 4, "memory_bytes": 2**34, "memory_bytes_free": 2**34},
        "b": None,
    }

"""Nodes that don't answer, fences, and pods that the ledger does not know, over REST."""

from dataclasses import replace
from datetime import timedelta

import httpx
import pytest
from fastapi import FastAPI

from reservation_core.domain.cards.link_words import read_links
from reservation_core.domain.cards.node_reports import GpuReport, NodeReport
from reservation_core.ports.jobs.unknown_pods import UnknownPod
from reservation_core.runtime.wiring import Runtime


def node(name: str, *, ready: bool = True, detail: str | None = None) -> NodeReport:
    return NodeReport(
        name,
        ready=ready,
        schedulable=True,
        gpus=(GpuReport(0, "h100", f"GPU-{name}", None),),
        detail=detail,
        zone="eu-1",
        logical_name=f"{name}-rack",
        taints=("gpu=only:NoSchedule",),
    )


@pytest.fixture(autouse=True)
async def inventory(runtime: Runtime, app: FastAPI) -> None:
    """`n1` answers, `n2` has not for a while, and a pod that nobody knows is on `n1`."""
    now = runtime.clock.now()
    pod = UnknownPod("job-nobody-1-0", "job-nobody", "n1", (0,), "The ledger has no reservation of this name.", now)
    async with runtime.uow() as uow:
        await uow.inventory.update([node("n1"), node("n2", ready=False, detail="Last seen at noon.")], [], now)
        await uow.unknown_pods.report([pod])


async def test_nodes_say_where_they_are_and_why_they_get_nothing_new(alice: httpx.AsyncClient) -> None:
    first, second = (await alice.get("/v1/nodes")).json()["items"]
    assert (first["zone"], first["logical_name"], first["taints"]) == ("eu-1", "n1-rack", ["gpu=only:NoSchedule"])
    assert "does not know holds GPUs 0 here" in first["detail"]
    assert "job-nobody" not in first["detail"]
    assert (second["ready"], second["free"], second["detail"]) == (False, 0, "Last seen at noon.")
    cards = (await alice.get("/v1/gpus")).json()["items"]
    assert [card["state"] for card in cards] == ["foreign", "quarantined"]
    metrics = (await alice.get("/metrics")).text
    assert 'gpu_dev_gpus{gpu_type="h100",state="quarantined"} 1.0' in metrics


async def test_a_node_is_fenced_and_unfenced(root: httpx.AsyncClient, runtime: Runtime) -> None:
    key = {"Idempotency-Key": "once"}
    answer = await root.post("/v1/nodes/n2/fence", json={"reason": "The fuse blew."}, headers=key)
    assert answer.status_code == 200, answer.text
    fenced = answer.json()
    assert fenced["fenced_by"] == "root"
    assert "Fenced by root at" in fenced["detail"]
    assert "(The fuse blew.)" in fenced["detail"]
    repeated = await root.post("/v1/nodes/n2/fence", json={"reason": "The fuse blew."}, headers=key)
    assert (repeated.json(), repeated.headers["Idempotency-Replayed"]) == (fenced, "true")
    assert (await root.post("/v1/nodes/n2/fence")).json() == fenced
    answer = await root.post("/v1/nodes/n2/unfence")
    assert (answer.status_code, answer.json()["fenced_at"]) == (200, None)
    again = await root.post("/v1/nodes/n2/unfence")
    assert (again.status_code, again.json()["type"]) == (409, "urn:gpu-dev:problem:node_not_fenced")


async def test_a_node_that_answers_is_not_fenced(root: httpx.AsyncClient) -> None:
    answer = await root.post("/v1/nodes/n1/fence")
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:gpu-dev:problem:node_answers")
    assert "gpu-dev nodes" in answer.json()["detail"]
    assert (await root.post("/v1/nodes/n3/fence")).status_code == 404
    assert (await root.post("/v1/nodes/n3/unfence")).status_code == 404
    assert (await root.post("/v1/nodes/n2/fence", json={"reason": ""})).status_code == 422


async def test_unknown_pods_are_listed_and_ended(root: httpx.AsyncClient, runtime: Runtime) -> None:
    [pod] = (await root.get("/v1/pods/unknown")).json()["items"]
    assert (pod["name"], pod["node"], pod["gpu_indices"], pod["end_requested_at"]) == (
        "job-nobody-1-0",
        "n1",
        [0],
        None,
    )
    answer = await root.post("/v1/pods/unknown/job-nobody-1-0/end")
    assert (answer.status_code, answer.json()["end_requested_by"]) == (202, "root")
    again = await root.post("/v1/pods/unknown/job-nobody-1-0/end")
    assert again.json() == answer.json()
    assert (await root.post("/v1/pods/unknown/job-nobody-1-1/end")).status_code == 404
    page = (await root.get("/v1/pods/unknown?limit=1")).json()
    assert (len(page["items"]), page["next_cursor"]) == (1, None)


async def test_how_cards_are_joined_is_shown_and_bookings_go_by_it(alice: httpx.AsyncClient, runtime: Runtime) -> None:
    now = runtime.clock.now()
    cards = tuple(GpuReport(index, "t4", f"GPU-n3-{index}", None) for index in range(4))
    joined = replace(node("n3"), gpus=cards, links=read_links("NV4 0,2 1,3"))
    async with runtime.uow() as uow:
        await uow.inventory.update([node("n1"), joined], [], now)
    first, *_, last = (await alice.get("/v1/nodes")).json()["items"]
    assert first["gpu_links"] is None
    assert last["gpu_links"][0] == ["X", "SYS", "NV4", "SYS"]
    start = (now + timedelta(days=1)).replace(second=0, microsecond=0)
    wish = {"gpus": 2, "gpu_type": "t4", "start": start.isoformat(), "end": (start + timedelta(hours=1)).isoformat()}
    answer = await alice.post("/v1/bookings", json=wish)
    assert answer.status_code == 201, answer.text
    assert [card["gpu_indices"] for card in answer.json()["allocations"]] == [[0, 2]]

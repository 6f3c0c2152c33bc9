"""Submitting, reading, cancelling and extending jobs over REST."""

import asyncio
from typing import Any

import httpx
from fastapi import FastAPI

from reservation_core.ports.queues import QueueName
from reservation_core.runtime.settings.components import ApiSettings, ClusterKind
from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.callers import JOB


async def test_a_job_is_accepted_stored_and_queued(alice: httpx.AsyncClient, runtime: Runtime) -> None:
    response = await alice.post("/v1/jobs", json={**JOB, "name": "train", "gpu_type": "h100"})
    assert response.status_code == 202
    job = response.json()
    assert response.headers["location"] == f"/v1/jobs/{job['id']}"
    assert response.headers["etag"] == '"1"'
    assert (job["user"], job["status"], job["duration"], job["gpu_type"]) == ("alice", "queued", "PT1H", "h100")
    read = await alice.get(f"/v1/jobs/{job['id']}")
    assert read.status_code == 200
    assert read.headers["etag"] == '"1"'
    ignored = {"queue_position", "estimated_start_at", "reason"}
    assert {k: v for k, v in read.json().items() if k not in ignored} == {
        k: v for k, v in job.items() if k not in ignored
    }
    async with runtime.uow() as uow:
        depths = {metric.queue: metric.depth for metric in await uow.queue.metrics()}
    assert depths[QueueName.GPU_JOBS.value] == 1


async def test_many_at_once_share_commits_and_each_gets_its_own(alice: httpx.AsyncClient, app: FastAPI) -> None:
    calls = 0
    writer = app.state.services.submissions
    store = writer._store

    async def counted(batch: Any) -> Any:
        nonlocal calls
        calls += 1
        return await store(batch)

    writer._store = counted
    answers = await asyncio.gather(*(alice.post("/v1/jobs", json={**JOB, "name": f"job {i}"}) for i in range(60)))
    assert {answer.status_code for answer in answers} == {202}
    assert [answer.json()["name"] for answer in answers] == [f"job {i}" for i in range(60)]
    assert len({answer.json()["id"] for answer in answers}) == 60
    assert calls < 60


async def test_cancel_and_extend_follow_the_version(alice: httpx.AsyncClient) -> None:
    job = (await alice.post("/v1/jobs", json=JOB)).json()
    path = f"/v1/jobs/{job['id']}"
    extended = await alice.post(f"{path}/extend", json={"by": 60}, headers={"If-Match": '"1"'})
    assert extended.status_code == 200
    assert extended.json()["duration"] == "PT1H1M"
    assert extended.headers["etag"] == '"2"'
    stale = await alice.post(f"{path}/cancel", headers={"If-Match": '"1"'})
    assert stale.status_code == 412
    assert stale.json()["type"] == "urn:gpu-dev:problem:stale_version"
    for malformed in ("3", '"03"', 'W/"2"', '"2", "3"', "'2'", '""'):
        answer = await alice.post(f"{path}/cancel", headers={"If-Match": malformed})
        assert (answer.status_code, answer.json()["type"]) == (400, "urn:gpu-dev:problem:bad_if_match")
    cancelled = await alice.post(f"{path}/cancel", headers={"If-Match": "*"})
    assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
    again = await alice.post(f"{path}/cancel")
    assert (again.status_code, again.json()["type"]) == (409, "urn:gpu-dev:problem:already_final")


async def test_extension_has_the_limit_of_the_settings(alice: httpx.AsyncClient) -> None:
    job = (await alice.post("/v1/jobs", json=JOB)).json()
    answer = await alice.post(f"/v1/jobs/{job['id']}/extend", json={"by": 86_400 * 30})
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:gpu-dev:problem:limit_exceeded")


async def test_priority_above_zero_is_for_administrators(alice: httpx.AsyncClient, root: httpx.AsyncClient) -> None:
    refused = await alice.post("/v1/jobs", json={**JOB, "priority": 1})
    assert (refused.status_code, refused.json()["type"]) == (403, "urn:gpu-dev:problem:forbidden")
    assert (await alice.post("/v1/jobs", json={**JOB, "priority": -1})).status_code == 202
    assert (await root.post("/v1/jobs", json={**JOB, "priority": 1})).status_code == 202


async def test_pages_are_stable_while_jobs_come(alice: httpx.AsyncClient) -> None:
    first = [(await alice.post("/v1/jobs", json={**JOB, "name": f"old {i}"})).json()["id"] for i in range(7)]
    seen: list[str] = []
    cursor: str | None = None
    while True:
        params = {"limit": 2} | ({} if cursor is None else {"cursor": cursor})
        page = (await alice.get("/v1/jobs", params=params)).json()
        seen += [job["id"] for job in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
        assert (await alice.post("/v1/jobs", json={**JOB, "name": "new"})).status_code == 202
    assert seen == first[::-1]


async def test_lists_filter_by_status_and_user(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, root: httpx.AsyncClient
) -> None:
    mine = (await alice.post("/v1/jobs", json=JOB)).json()["id"]
    gone = (await alice.post("/v1/jobs", json=JOB)).json()["id"]
    await alice.post(f"/v1/jobs/{gone}/cancel")
    theirs = (await bob.post("/v1/jobs", json=JOB)).json()["id"]

    async def ids(client: httpx.AsyncClient, query: str) -> list[str]:
        return [job["id"] for job in (await client.get(f"/v1/jobs{query}")).json()["items"]]

    assert await ids(alice, "") == [gone, mine]
    assert await ids(alice, "?status=queued&status=running") == [mine]
    assert await ids(alice, "?user=bob") == []
    assert await ids(root, "?user=bob") == [theirs]
    assert set(await ids(root, "")) == {mine, gone, theirs}


async def test_cursors_of_other_lists_and_made_up_ones_are_refused(alice: httpx.AsyncClient) -> None:
    for _ in range(2):
        await alice.post("/v1/jobs", json=JOB)
    cursor = (await alice.get("/v1/jobs?limit=1")).json()["next_cursor"]
    for path in ("/v1/nodes", "/v1/gpus", "/v1/queue", "/v1/tokens"):
        answer = await alice.get(path, params={"cursor": cursor})
        assert (answer.status_code, answer.json()["type"]) == (400, "urn:gpu-dev:problem:bad_cursor"), path
    for made_up in ("x", "!!", "AAAA", cursor[:-2], cursor + "A" * 8, "WyJqb2JzIix0cnVlXQ", "WyJqb2JzIiwxZTk5XQ"):
        answer = await alice.get("/v1/jobs", params={"cursor": made_up})
        assert answer.status_code == 400, made_up


async def test_what_a_job_was_asked_for_can_be_asked_for_again(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, root: httpx.AsyncClient, settings: ApiSettings
) -> None:
    settings.cluster = ClusterKind.KUBERNETES  # for its image
    request = {
        "name": "train",
        "gpus": 2,
        "gpu_type": "h100",
        "nodes": 2,
        "duration": "PT4H",
        "workload": {
            "image": "registry.example/train:1",
            "command": ["python", "train.py"],
            "env": {"WANDB_API_KEY": "a secret", "SEED": "1"},
            "working_dir": "/data",
        },
        "priority": -5,
        "booking_id": None,
        "project": None,
    }
    first = (await alice.post("/v1/jobs", json=request)).json()
    answer = await alice.get(f"/v1/jobs/{first['id']}/spec")
    assert (answer.status_code, answer.json()) == (200, request)
    assert answer.headers["cache-control"] == "no-store"
    again = await alice.post("/v1/jobs", json=answer.json())
    assert again.status_code == 202
    different = {"id", "created_at"}
    assert {k: v for k, v in again.json().items() if k not in different} == {
        k: v for k, v in first.items() if k not in different
    }
    seen = await root.get(f"/v1/jobs/{first['id']}/spec")
    assert "secret" not in seen.text
    assert seen.json()["workload"]["env"] == {"WANDB_API_KEY": None, "SEED": None}
    assert (await bob.get(f"/v1/jobs/{first['id']}/spec")).status_code == 404
    await alice.post(f"/v1/jobs/{first['id']}/extend", json={"by": "PT1H"})
    assert (await alice.get(f"/v1/jobs/{first['id']}/spec")).json()["duration"] == "PT5H"

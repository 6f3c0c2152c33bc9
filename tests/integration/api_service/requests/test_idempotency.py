"""Repeated POSTs over a real database."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from reservation_core.runtime.settings.components import ApiSettings, ClusterKind
from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings.calendars import add_nodes, asked, at
from tests.integration.api_service.callers import JOB, submitted
from tests.waiting import PATIENCE_S

KEY = {"Idempotency-Key": "9b2f"}


async def _count(client: httpx.AsyncClient) -> int:
    return len((await client.get("/v1/jobs?limit=500")).json()["items"])


async def test_the_same_request_gets_the_same_answer(alice: httpx.AsyncClient) -> None:
    first = await alice.post("/v1/jobs", json=JOB, headers=KEY)
    respaced = json.dumps(dict(reversed(JOB.items())), indent=4).encode()
    again = await alice.post("/v1/jobs", content=respaced, headers={**KEY, "Content-Type": "application/json"})
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.content == again.content
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert await _count(alice) == 1


async def test_another_request_with_the_key_conflicts(alice: httpx.AsyncClient) -> None:
    await alice.post("/v1/jobs", json=JOB, headers=KEY)
    other = await alice.post("/v1/jobs", json={**JOB, "gpus": 2}, headers=KEY)
    assert (other.status_code, other.json()["type"]) == (409, "urn:gpu-dev:problem:idempotency_conflict")
    elsewhere = await alice.post("/v1/tokens", json={}, headers=KEY)
    assert (elsewhere.status_code, elsewhere.json()["type"]) == (409, "urn:gpu-dev:problem:idempotency_conflict")
    assert await _count(alice) == 1


async def test_keys_belong_to_their_user(alice: httpx.AsyncClient, bob: httpx.AsyncClient) -> None:
    one = await alice.post("/v1/jobs", json=JOB, headers=KEY)
    two = await bob.post("/v1/jobs", json={**JOB, "gpus": 2}, headers=KEY)
    assert (one.status_code, two.status_code) == (202, 202)
    assert one.json()["id"] != two.json()["id"]


async def test_twenty_at_once_with_one_key_are_one_job(alice: httpx.AsyncClient) -> None:
    answers = await asyncio.gather(*(alice.post("/v1/jobs", json=JOB, headers=KEY) for _ in range(20)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.content for answer in answers}) == 1
    assert await _count(alice) == 1


async def test_a_refused_request_does_not_use_its_key_up(alice: httpx.AsyncClient) -> None:
    assert (await alice.post("/v1/jobs", json={**JOB, "gpus": 0}, headers=KEY)).status_code == 422
    assert (await alice.post("/v1/jobs", json=JOB, headers=KEY)).status_code == 202


@pytest.mark.parametrize("change", ["image", "type", "limit"])
async def test_what_would_be_refused_now_has_its_first_answer(
    alice: httpx.AsyncClient, runtime: Runtime, settings: ApiSettings, change: str
) -> None:
    settings.cluster = ClusterKind.KUBERNETES
    image = {"command": ["true"], "image": "train:1"}
    job = {**JOB, "gpu_type": "b200", "workload": image if change == "image" else JOB["workload"]}
    first = await alice.post("/v1/jobs", json=job, headers=KEY)
    match change:
        case "image":
            settings.cluster = ClusterKind.LOCAL
        case "type":
            await add_nodes(runtime, a=("h100", 2))
            # Types are looked for once a second before the first node.
            async with asyncio.timeout(PATIENCE_S):
                while (await alice.post("/v1/jobs", json=job)).status_code == 202:
                    await asyncio.sleep(0.05)
        case _:
            settings.max_duration_s = 1
    again = await alice.post("/v1/jobs", json=job, headers=KEY)
    assert (again.status_code, again.content) == (202, first.content)
    assert again.headers["idempotency-replayed"] == "true"
    assert (await alice.post("/v1/jobs", json=job, headers={"Idempotency-Key": "new"})).status_code == 422
    other = await alice.post("/v1/jobs", json={**job, "name": "other"}, headers=KEY)
    assert other.status_code == 409
    assert (await alice.post("/v1/jobs", json=job)).status_code == 422


async def test_a_booking_whose_image_would_be_refused_now_has_its_first_answer(
    alice: httpx.AsyncClient, runtime: Runtime, settings: ApiSettings
) -> None:
    await add_nodes(runtime, a=("h100", 2))
    settings.cluster = ClusterKind.KUBERNETES
    booking = asked(at(1), workload={"command": ["true"], "image": "train:1"})
    first = await alice.post("/v1/bookings", json=booking, headers=KEY)
    settings.cluster = ClusterKind.LOCAL
    again = await alice.post("/v1/bookings", json=booking, headers=KEY)
    assert (again.status_code, again.content) == (201, first.content)


async def test_changes_happen_once(alice: httpx.AsyncClient) -> None:
    job = await submitted(alice)
    path = f"/v1/jobs/{job['id']}/extend"
    answers = await asyncio.gather(*(alice.post(path, json={"by": 600}, headers=KEY) for _ in range(5)))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
    assert (await alice.get(f"/v1/jobs/{job['id']}")).json()["duration"] == "PT1H10M"
    cancel = await alice.post(f"/v1/jobs/{job['id']}/cancel", headers={"Idempotency-Key": "c"})
    again = await alice.post(f"/v1/jobs/{job['id']}/cancel", headers={"Idempotency-Key": "c"})
    assert (cancel.status_code, again.status_code) == (200, 200)
    assert cancel.content == again.content


async def test_a_tokens_secret_is_shown_once(alice: httpx.AsyncClient) -> None:
    first = (await alice.post("/v1/tokens", json={"name": "ci"}, headers=KEY)).json()
    again = (await alice.post("/v1/tokens", json={"name": "ci"}, headers=KEY)).json()
    assert first["token"].startswith("gpudev_")
    assert again == {**first, "token": None}


async def test_one_bad_submission_fails_alone(alice: httpx.AsyncClient, app: FastAPI) -> None:
    """A row that the database refuses must not take the others of its batch with it."""
    writer = app.state.services.submissions
    store = writer._store

    async def refuse_the_bad(batch: Any) -> Any:
        if any(new.reservation.name == "bad" for new in batch):
            raise RuntimeError("refused")
        return await store(batch)

    writer._store = refuse_the_bad
    names = ["bad" if i == 3 else f"good {i}" for i in range(10)]
    answers = await asyncio.gather(*(alice.post("/v1/jobs", json={**JOB, "name": name}) for name in names))
    assert [answer.status_code for answer in answers] == [500 if name == "bad" else 202 for name in names]
    assert await _count(alice) == 9

"""Disks over REST, and jobs that have them."""

import asyncio
from typing import Any

import httpx
import pytest

from reservation_core.domain.disks.disk_uses import MOST_DISKS, MOST_IN_JOB
from tests.integration.api_service.callers import JOB, submitted

DISKS = "/v1/disks"
MIB = 2**20


async def created(client: httpx.AsyncClient, name: str = "data", size: object = "1Gi") -> dict[str, Any]:
    answer = await client.post(DISKS, json={"name": name, "size": size})
    assert answer.status_code == 201, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


async def test_a_disk_is_created_changed_listed_deleted_and_restored(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    disk = await created(alice)
    assert (disk["state"], disk["size"], disk["used"], disk["jobs"]) == ("creating", 1024 * MIB, None, [])
    await created(alice, "b", 5 * MIB)
    page = (await alice.get(DISKS, params={"limit": 1})).json()
    assert [shown["name"] for shown in page["items"]] == ["b"]
    rest = (await alice.get(DISKS, params={"limit": 1, "cursor": page["next_cursor"]})).json()
    assert ([shown["name"] for shown in rest["items"]], rest["next_cursor"]) == (["data"], None)
    assert (await bob.get(DISKS)).json()["items"] == []
    changed = await alice.patch(f"{DISKS}/data", json={"name": "more", "size": "2Gi"})
    assert (changed.status_code, changed.json()["name"], changed.json()["size"]) == (200, "more", 2048 * MIB)
    deleted = await alice.delete(f"{DISKS}/more")
    assert (deleted.status_code, deleted.json()["state"]) == (200, "deleted")
    assert deleted.json()["kept_until"] is not None
    assert [shown["name"] for shown in (await alice.get(DISKS, params={"deleted": True})).json()["items"]] == ["more"]
    assert (await alice.get(f"{DISKS}/more")).status_code == 404
    restored = await alice.post(f"{DISKS}/more/restore")
    assert (restored.status_code, restored.json()["deleted_at"]) == (200, None)
    assert (await alice.post(f"{DISKS}/more/restore")).status_code == 404


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ({"name": "Data", "size": "1Gi"}, "name"),
        ({"name": "a" * 64, "size": "1Gi"}, "name"),
        ({"name": "data"}, "size"),
        ({"name": "data", "size": 0}, "size"),
        ({"name": "data", "size": "1 Gi"}, "size"),
        ({"name": "data", "size": 2**60}, "size"),
        ({"name": "data", "size": True}, "size"),
        ({"name": "data", "size": "1Gi", "more": 1}, "more"),
    ],
)
async def test_requests_that_are_wrong_name_the_field(
    alice: httpx.AsyncClient, body: dict[str, Any], names: str
) -> None:
    answer = await alice.post(DISKS, json=body)
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert names in answer.text
    assert (await alice.get(DISKS)).json()["items"] == []


async def test_bounds_of_a_user(alice: httpx.AsyncClient, bob: httpx.AsyncClient) -> None:
    await created(alice, "big", "1023Gi")
    await alice.delete(f"{DISKS}/big")  # it is kept, and counts
    refused = await alice.post(DISKS, json={"name": "b", "size": "2Gi"})
    assert (refused.status_code, "1 TiB" in refused.text) == (422, True)
    for number in range(MOST_DISKS):
        await created(bob, f"d{number}", MIB)
    assert "100 disks" in (await bob.post(DISKS, json={"name": "one-more", "size": MIB})).text


async def test_a_job_has_its_disk_from_its_submission_on(alice: httpx.AsyncClient, bob: httpx.AsyncClient) -> None:
    await created(alice)
    job = await submitted(alice, disks=[{"name": "data", "path": "/data"}])
    assert (await alice.get(f"{DISKS}/data")).json()["jobs"] == [{"job": job["id"], "read_only": False}]
    spec = (await alice.get(f"/v1/jobs/{job['id']}/spec")).json()
    assert spec["disks"] == [{"name": "data", "path": "/data", "read_only": False}]
    for dry_run in (False, True):
        second = await alice.post("/v1/jobs", json={**JOB, "disks": [{"name": "data"}]}, params={"dry_run": dry_run})
        assert (second.status_code, job["id"] in second.json()["detail"]) == (409, True)
    await submitted(alice, disks=[{"name": "data", "read_only": True}])
    assert (await alice.delete(f"{DISKS}/data")).status_code == 409
    assert (await bob.post("/v1/jobs", json={**JOB, "disks": [{"name": "data"}]})).status_code == 422
    await alice.post(f"/v1/jobs/{job['id']}/cancel")
    await submitted(alice, disks=[{"name": "data"}])


async def test_of_many_at_once_one_writes(alice: httpx.AsyncClient) -> None:
    await created(alice)
    body = {**JOB, "disks": [{"name": "data"}]}
    answers = await asyncio.gather(*(alice.post("/v1/jobs", json=body) for _ in range(8)))
    assert sorted(answer.status_code for answer in answers) == [202, *[409] * 7]
    assert len((await alice.get("/v1/jobs")).json()["items"]) == 1


async def test_the_same_request_twice_is_one_job(alice: httpx.AsyncClient) -> None:
    await created(alice)
    body, headers = {**JOB, "disks": [{"name": "data"}]}, {"Idempotency-Key": "k"}
    answers = await asyncio.gather(*(alice.post("/v1/jobs", json=body, headers=headers) for _ in range(6)))
    answers.append(await alice.post("/v1/jobs", json=body, headers=headers))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["id"] for answer in answers}) == 1


@pytest.mark.parametrize(
    "disks",
    [
        [{"name": "data"}, {"name": "data", "path": "/b"}],
        [{"name": "data", "path": "/a"}, {"name": "b", "path": "/a/b"}],
        [{"name": "data", "path": "relative"}],
        [{"name": "data", "path": "/proc"}],
        [{"name": "Data"}],
        [{"name": "none"}],
        [{"name": f"d{number}"} for number in range(MOST_IN_JOB + 1)],
        [{"name": "data", "read_only": 1}],
        {"name": "data"},
    ],
)
async def test_uses_that_are_wrong_are_refused(alice: httpx.AsyncClient, disks: object) -> None:
    await created(alice)
    answer = await alice.post("/v1/jobs", json={**JOB, "disks": disks})
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert "disk" in answer.text
    assert (await alice.get("/v1/jobs")).json()["items"] == []

"""Disks over REST, and jobs that have them."""

import asyncio
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from reservation_core.domain.disks.disk_uses import MOST_DISKS, MOST_IN_JOB
from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings.calendars import execute
from tests.integration.api_service.callers import JOB, submitted
from tests.integration.api_service.jobs.asks.asked_disks import DISKS, MIB, created


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
        ({"name": "data", "size": "1  Gi"}, "size"),
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
    refused = await bob.post(DISKS, json={"name": "one-more", "size": MIB})
    assert "You have 100 disks" in refused.text
    assert "`gpu-dev disk list --deleted` shows when." in refused.json()["detail"]


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
    unknown = await bob.post("/v1/jobs", json={**JOB, "disks": [{"name": "data"}]})
    said = {"code": "no_such_disk", "detail": "disks.0.name: you have no disk data"}
    assert (unknown.status_code, unknown.json()["broken_rules"]) == (422, [said])
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
    body = answer.json()
    names_field = "disks" in str(body.get("broken_rules")) or "no disk none" in body["detail"]
    assert names_field, answer.text
    assert (await alice.get("/v1/jobs")).json()["items"] == []


async def test_a_disk_that_could_not_be_made_is_not_said_to_be_kept(alice: httpx.AsyncClient, runtime: Runtime) -> None:
    await created(alice)
    await execute(runtime, "UPDATE disks SET problem = 'There is no room.'")
    assert (await alice.delete(f"{DISKS}/data")).json()["kept_until"] is None


async def test_the_root_is_no_path(alice: httpx.AsyncClient) -> None:
    await created(alice)
    refused = await alice.post("/v1/jobs", json={**JOB, "disks": [{"name": "data", "path": "/"}]})
    assert "must be an absolute path without" in refused.text


async def test_an_array_that_would_write_is_told_how_to_read(alice: httpx.AsyncClient) -> None:
    await created(alice)
    refused = await alice.post("/v1/jobs", json={**JOB, "array": {"size": 2}, "disks": [{"name": "data"}]})
    assert "let them only read it: `data:ro`" in refused.text


async def test_administrators_manage_disks_of_a_disabled_user(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, root: httpx.AsyncClient
) -> None:
    await created(alice)
    await created(alice, "home")
    of_alice = {"user": "alice"}
    assert (await root.delete("/v1/users/alice")).is_success
    assert [disk["name"] for disk in (await root.get(DISKS, params=of_alice)).json()["items"]] == ["data", "home"]
    assert (await root.get(DISKS)).json()["items"] == []
    assert (await root.get(f"{DISKS}/data", params=of_alice)).json()["size"] == 2**30
    assert (await root.delete(f"{DISKS}/data", params=of_alice)).json()["state"] == "deleted"
    assert (await root.post(f"{DISKS}/data/restore", params=of_alice)).status_code == 200
    await created(bob, "home")
    taken = await root.patch(f"{DISKS}/home", params=of_alice, json={"owner": "bob"})
    assert (taken.status_code, taken.json()["detail"]) == (409, "bob has a disk home already. Choose another name.")
    given = await root.patch(f"{DISKS}/home", params=of_alice, json={"owner": "bob", "name": "home-of-alice"})
    assert (given.status_code, given.json()["name"]) == (200, "home-of-alice"), given.text
    assert [disk["name"] for disk in (await bob.get(DISKS)).json()["items"]] == ["home", "home-of-alice"]
    assert [disk["name"] for disk in (await root.get(DISKS, params=of_alice)).json()["items"]] == ["data"]
    events = (await root.get("/v1/events", params={"subject": "user:bob"})).json()["items"]
    [handed] = [event for event in events if event["kind"] == "disk_handed_over"]
    assert (handed["actor"], handed["data"]["to"], handed["data"]["was"]) == ("root", "bob", "home")


async def test_a_key_is_for_the_disk_of_one_user(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, root: httpx.AsyncClient
) -> None:
    for client in (alice, bob, root):
        await created(client)
        assert (await client.delete(f"{DISKS}/data")).is_success
    for key, method, path, body in (
        ("k1", "POST", f"{DISKS}/data/restore", None),
        ("k2", "PATCH", f"{DISKS}/data", {"size": "2Gi"}),
    ):
        statuses = []
        for user in ("alice", "alice", "bob", "root", None):
            params = {} if user is None else {"user": user}
            answer = await root.request(method, path, params=params, json=body, headers={"Idempotency-Key": key})
            statuses.append((answer.status_code, answer.headers.get("Idempotency-Replayed")))
        assert statuses == [(200, None), (200, "true"), *[(409, None)] * 3], method
    own = [
        await root.post(f"{DISKS}/data/restore", params=params, headers={"Idempotency-Key": "own"})
        for params in ({"user": "root"}, {})
    ]
    assert [answer.status_code for answer in own] == [200, 200]
    assert own[1].headers["Idempotency-Replayed"] == "true"
    assert [disk["name"] for disk in (await bob.get(DISKS, params={"deleted": True})).json()["items"]] == ["data"]


async def test_what_administrators_and_others_cannot_do_is_refused(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, root: httpx.AsyncClient
) -> None:
    await created(alice)
    await created(bob, "big", "1024Gi")
    of_alice = {"user": "alice"}
    for answer in (
        await bob.get(DISKS, params=of_alice),
        await bob.get(f"{DISKS}/data", params=of_alice),
        await bob.delete(f"{DISKS}/data", params=of_alice),
        await bob.patch(f"{DISKS}/data", params=of_alice, json={"name": "mine"}),
        await bob.post(f"{DISKS}/data/restore", params=of_alice),
        await alice.patch(f"{DISKS}/data", json={"owner": "bob"}),
    ):
        assert (answer.status_code, "Only administrators" in answer.json()["detail"]) == (403, True), answer.text
        assert "Leave `user` out" not in answer.text  # for commands it is `--user`
    assert (await root.get(DISKS, params={"user": "nobody-here"})).status_code == 404
    missing = await root.get(f"{DISKS}/none", params=of_alice)
    assert (missing.status_code, "alice has no disk none." in missing.json()["detail"]) == (404, True)
    full = await root.patch(f"{DISKS}/data", params=of_alice, json={"owner": "bob"})
    assert (full.status_code, "bob's disks would have" in full.json()["detail"]) == (422, True)
    assert full.json()["detail"].endswith(
        "Delete disks of bob and wait until they are removed, or raise GPU_DEV_DISKS__USER_BYTES."
    )
    assert (await root.patch(f"{DISKS}/data", params=of_alice, json={"owner": "nobody-here"})).status_code == 404
    job = await submitted(alice, disks=[{"name": "data", "read_only": True}])
    used = await root.patch(f"{DISKS}/data", params=of_alice, json={"owner": "root"})
    assert (used.status_code, job["id"] in used.json()["detail"]) == (409, True)
    await alice.post(f"/v1/jobs/{job['id']}/cancel")
    await bob.delete(f"{DISKS}/big")
    await root.delete("/v1/users/bob")
    disabled = await root.patch(f"{DISKS}/data", params=of_alice, json={"owner": "bob"})
    assert (disabled.status_code, "bob is disabled" in disabled.json()["detail"]) == (409, True), disabled.text
    again = await root.patch(f"{DISKS}/data", params=of_alice, json={"owner": "alice"})
    assert again.status_code == 200  # she has it already


async def test_a_disk_that_root_takes_is_refused_with_what_helps(
    alice: httpx.AsyncClient, root: httpx.AsyncClient, app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    await created(alice, size=6 * MIB)
    await created(root, size=5 * MIB)

    async def refusal(**changes: object) -> str:
        answer = await root.patch(f"{DISKS}/data", params={"user": "alice"}, json={"owner": "root", **changes})
        assert answer.is_client_error
        detail: str = answer.json()["detail"]
        return detail

    assert await refusal() == "root has a disk data already. Choose another name."
    monkeypatch.setattr(app.state.services.settings.disks, "all_bytes", 10 * MIB)
    helps = "Delete disks of root and wait until they are removed, or raise GPU_DEV_DISKS__"
    assert await refusal(name="more") == (
        f"All users' disks have 5 MiB together, and 10 MiB are allowed. {helps}ALL_BYTES."
    )
    monkeypatch.setattr(app.state.services.settings.disks, "user_bytes", 10 * MIB)
    said = await refusal(name="more")
    assert (said.startswith("root's disks would have 11 MiB"), said.endswith(f"{helps}USER_BYTES.")) == (True, True)
    grown = await root.patch(f"{DISKS}/data", json={"owner": "root", "size": 11 * MIB})
    assert grown.json()["detail"].startswith("Your disks would have 11 MiB together")
    assert grown.json()["detail"].endswith("Ask for a smaller size, or raise GPU_DEV_DISKS__USER_BYTES.")


async def test_disks_of_all_users_have_a_bound(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app.state.services.settings.disks, "all_bytes", 10 * MIB)
    await created(alice, "data", 6 * MIB)
    refused = await bob.post(DISKS, json={"name": "data", "size": 5 * MIB})
    assert (refused.status_code, "All users' disks have 6 MiB together" in refused.json()["detail"]) == (422, True)
    await created(bob, "data", 4 * MIB)
    assert (await alice.patch(f"{DISKS}/data", json={"size": 7 * MIB})).status_code == 422
    await alice.delete(f"{DISKS}/data")  # it is kept, and counts
    answers = await asyncio.gather(
        *(alice.post(DISKS, json={"name": f"d{number}", "size": MIB}) for number in range(4))
    )
    assert {answer.status_code for answer in answers} == {422}
    monkeypatch.setattr(app.state.services.settings.disks, "all_bytes", 12 * MIB)
    clients = [alice, bob, alice, bob]
    answers = await asyncio.gather(
        *(client.post(DISKS, json={"name": f"e{number}", "size": MIB}) for number, client in enumerate(clients))
    )
    assert sorted(answer.status_code for answer in answers) == [201, 201, 422, 422]

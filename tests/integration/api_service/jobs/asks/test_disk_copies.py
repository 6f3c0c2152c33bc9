"""Snapshots and clones of disks over REST."""

import asyncio
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from reservation_core.runtime.settings.components import ClusterKind
from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.jobs.asks.asked_disks import DISKS, created


async def made(runtime: Runtime) -> None:
    """What the leader would do: all disks and copies are made."""
    async with runtime.uow() as uow:
        now = runtime.clock.now()
        for copy in await uow.snapshots.copies_to_make(now, 100):
            await uow.snapshots.note_copied(copy, copy.size_bytes)
        for disk in await uow.disks.to_settle(now, now, 100):
            await uow.disks.note_made(disk.id, disk.size_bytes)


async def test_snapshots_are_taken_listed_cloned_and_deleted(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, root: httpx.AsyncClient, runtime: Runtime
) -> None:
    await created(alice)
    await made(runtime)
    taken = await alice.post(f"{DISKS}/data/snapshots", json={"name": "first"})
    assert (taken.status_code, taken.json()["ready"], taken.json()["size"]) == (201, False, 2**30)
    named = await root.post(f"{DISKS}/data/snapshots", params={"user": "alice"}, json={})
    assert (named.status_code, len(named.json()["name"])) == (201, len("20261127-180000")), named.text
    early = await alice.post(DISKS, json={"name": "then", "source": {"disk": "data", "snapshot": "first"}})
    assert (early.status_code, "is not taken yet" in early.json()["detail"]) == (422, True)
    await made(runtime)
    page = (await alice.get(f"{DISKS}/data/snapshots")).json()
    assert ([one["ready"] for one in page["items"]], page["next_cursor"]) == ([True, True], None)
    assert [one["name"] for one in (await alice.get(f"{DISKS}/data")).json()["snapshots"]] == [
        named.json()["name"], "first",
    ]  # fmt: skip
    cloned = await alice.post(DISKS, json={"name": "then", "source": {"disk": "data", "snapshot": "first"}})
    assert (cloned.status_code, cloned.json()["state"], cloned.json()["size"]) == (201, "creating", 2**30)
    assert (await alice.delete(f"{DISKS}/data/snapshots/first")).status_code == 409
    await made(runtime)
    assert (await alice.get(f"{DISKS}/then")).json()["state"] == "ready"
    for client, status in ((bob, 404), (alice, 200), (alice, 404)):
        answer = await client.delete(f"{DISKS}/data/snapshots/first")
        assert answer.status_code == status, answer.text
    for answer in (
        await bob.get(f"{DISKS}/data/snapshots", params={"user": "alice"}),
        await bob.post(f"{DISKS}/data/snapshots", params={"user": "alice"}, json={}),
        await bob.delete(f"{DISKS}/data/snapshots/x", params={"user": "alice"}),
    ):
        assert answer.status_code == 403, answer.text
    assert (await bob.post(DISKS, json={"name": "mine", "source": {"disk": "data"}})).status_code == 404
    events = (await root.get("/v1/events", params={"subject": "user:alice"})).json()["items"]
    assert {"snapshot_taken", "snapshot_deleted"} <= {event["kind"] for event in events}


async def test_a_disk_is_given_away_with_its_snapshots_which_count(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, root: httpx.AsyncClient, runtime: Runtime
) -> None:
    await created(alice, size="400Gi")
    await created(bob, "other", "300Gi")
    await made(runtime)
    assert (await alice.post(f"{DISKS}/data/snapshots", json={"name": "first"})).is_success
    await made(runtime)
    given = await root.patch(f"{DISKS}/data", params={"user": "alice"}, json={"owner": "bob"})
    assert (given.status_code, "bob's disks would have 1.1 TiB together, snapshots" in given.json()["detail"]) == (
        422,
        True,
    ), given.text
    renamed = await alice.patch(f"{DISKS}/data", json={"name": "sets"})
    assert [one["name"] for one in renamed.json()["snapshots"]] == ["first"]
    given = await root.patch(f"{DISKS}/sets", params={"user": "alice"}, json={"owner": "root"})
    assert (given.status_code, [one["name"] for one in given.json()["snapshots"]]) == (200, ["first"]), given.text


async def test_of_many_snapshots_at_once_one_has_the_name_and_a_key_is_for_one(
    alice: httpx.AsyncClient, runtime: Runtime
) -> None:
    await created(alice)
    await made(runtime)
    address, body = f"{DISKS}/data/snapshots", {"name": "first"}
    answers = await asyncio.gather(*(alice.post(address, json=body) for _ in range(6)))
    assert sorted(answer.status_code for answer in answers) == [201, *[409] * 5]
    answers = await asyncio.gather(
        *(alice.post(address, json={"name": "second"}, headers={"Idempotency-Key": "k"}) for _ in range(6))
    )
    assert {answer.status_code for answer in answers} == {201}
    assert len((await alice.get(address)).json()["items"]) == 2


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ({"name": "new"}, "size"),
        ({"name": "new", "source": {}}, "disk"),
        ({"name": "new", "source": {"disk": "Data"}}, "disk"),
        ({"name": "new", "source": {"disk": "data", "snapshot": "a/b"}}, "snapshot"),
        ({"name": "new", "source": {"disk": "data", "user": "bob"}}, "user"),
        ({"name": "new", "source": "data"}, "source"),
    ],
)
async def test_clones_that_are_wrong_name_the_field(alice: httpx.AsyncClient, body: dict[str, Any], names: str) -> None:
    await created(alice)
    answer = await alice.post(DISKS, json=body)
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert names in answer.text


async def test_a_server_without_snapshots_says_which_setting_it_lacks(
    alice: httpx.AsyncClient, app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    await created(alice)
    monkeypatch.setattr(app.state.services.settings, "cluster", ClusterKind.KUBERNETES)
    monkeypatch.setattr(app.state.services.settings.kubernetes, "disk_class", "shared")
    answer = await alice.post(f"{DISKS}/data/snapshots", json={})
    assert (answer.status_code, "GPU_DEV_KUBERNETES__SNAPSHOT_CLASS" in answer.json()["detail"]) == (422, True)

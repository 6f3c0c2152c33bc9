"""The disk `home` in sessions, over REST."""

import asyncio
from typing import Any

import httpx

from tests.integration.api_service.callers import JOB
from tests.integration.api_service.jobs.asks.asked_disks import created

SESSION = {**JOB, "workload": {}}


async def disks_of(client: httpx.AsyncClient, **more: object) -> list[tuple[str, str, bool]]:
    answer = await client.post("/v1/jobs", json={**SESSION, **more})
    assert answer.status_code == 202, answer.text
    spec = (await client.get(f"/v1/jobs/{answer.json()['id']}/spec")).json()
    await client.post(f"/v1/jobs/{answer.json()['id']}/cancel")
    return [(disk["name"], disk["path"], disk["read_only"]) for disk in spec.get("disks", [])]


async def test_a_session_has_the_disk_home_unless_it_says_otherwise(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    assert await disks_of(alice) == []
    await created(alice, "home")
    await created(alice, "data")
    home = ("home", "/home/dev", False)
    assert await disks_of(alice) == [home]
    assert await disks_of(bob) == []
    assert await disks_of(alice, disks=[{"name": "data"}]) == [("data", "/disks/data", False), home]
    cases: list[tuple[dict[str, Any], list[tuple[str, str, bool]]]] = [
        ({"no_home": True}, []),
        ({"workload": {"command": ["true"]}}, []),
        ({"disks": [{"name": "home", "read_only": True}]}, [("home", "/home/dev", True)]),
        ({"disks": [{"name": "home", "path": "/h"}]}, [("home", "/h", False)]),
        ({"disks": [{"name": "data", "path": "/home/dev/data"}]}, [("data", "/home/dev/data", False)]),
        ({"disks": [{"name": "data", "path": "/home"}]}, [("data", "/home", False)]),
    ]
    for more, disks in cases:
        assert await disks_of(alice, **more) == disks, more


async def test_two_sessions_with_home_are_not_there_at_once(alice: httpx.AsyncClient) -> None:
    await created(alice, "home")
    answers = await asyncio.gather(*(alice.post("/v1/jobs", json=SESSION) for _ in range(5)))
    assert sorted(answer.status_code for answer in answers) == [202, *[409] * 4]
    for params in ({}, {"dry_run": True}):
        late = await alice.post("/v1/jobs", json=SESSION, params=params)
        assert (late.status_code, late.json()["type"]) == (409, "urn:gpu-dev:problem:disk_in_use")
        assert late.json()["detail"].endswith(
            "A session has your disk home at /home/dev; `gpu-dev dev --no-home` starts one without it."
        )
    assert (await alice.post("/v1/jobs", json={**SESSION, "no_home": True})).status_code == 202


async def test_a_fault_of_another_disk_advises_nothing_about_home(alice: httpx.AsyncClient) -> None:
    await created(alice, "home")
    await created(alice, "data")
    writer = {**SESSION, "no_home": True, "disks": [{"name": "data"}]}
    assert (await alice.post("/v1/jobs", json=writer)).status_code == 202
    for disks, status in (([{"name": "data"}], 409), ([{"name": "none"}], 422)):
        refused = await alice.post("/v1/jobs", json={**SESSION, "disks": disks})
        assert refused.status_code == status, refused.text
        assert "home" not in refused.json()["detail"]
    assert (
        await alice.post("/v1/jobs", json={**SESSION, "disks": [{"name": "data", "read_only": True}]})
    ).status_code == 202
    both = await alice.post("/v1/jobs", json={**SESSION, "disks": [{"name": "data", "read_only": True}]})
    assert "A session has your disk home" in both.json()["detail"]
    assert "`home:ro`" in both.json()["detail"]


async def test_a_session_that_is_sent_twice_with_a_key_is_one(alice: httpx.AsyncClient) -> None:
    before = await alice.post("/v1/jobs", json=SESSION, headers={"Idempotency-Key": "before"})
    await created(alice, "home")
    again = await alice.post("/v1/jobs", json=SESSION, headers={"Idempotency-Key": "before"})
    assert (again.status_code, again.json()["id"]) == (202, before.json()["id"])
    headers = {"Idempotency-Key": "k"}
    answers = await asyncio.gather(*(alice.post("/v1/jobs", json=SESSION, headers=headers) for _ in range(5)))
    answers.append(await alice.post("/v1/jobs", json=SESSION, headers=headers))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["id"] for answer in answers}) == 1

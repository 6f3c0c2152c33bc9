"""Sharing a job: who it is shared with sees it and changes nothing of it."""

import asyncio
from typing import Any

import httpx
import pytest

from reservation_core.adapters.postgres.jobs import job_views
from reservation_core.domain.statuses import Role
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.sessions.share import MOST_USERS
from tests.database.sql import sql
from tests.integration.api_service.callers import submitted

REFUSED = "{job_id} belongs to alice, who shares it with you: you may enter it and look at it. Ask alice to change it."


async def shared(alice: httpx.AsyncClient, **fields: Any) -> str:
    """The id of a job of alice's that is shared with bob."""
    job_id: str = (await submitted(alice, **fields))["id"]
    answer = await alice.put(f"/v1/jobs/{job_id}/shares/bob")
    assert answer.status_code == 200, answer.text
    assert answer.json()["shared_with"] == ["bob"]
    return job_id


async def test_a_shared_user_looks_and_changes_nothing(alice: httpx.AsyncClient, bob: httpx.AsyncClient) -> None:
    workload = {"command": ["true"], "env": {"PASSWORD": "hunter2"}}
    job_id = await shared(alice, workload=workload)
    seen = await bob.get(f"/v1/jobs/{job_id}")
    own = (await alice.get(f"/v1/jobs/{job_id}")).json()
    assert seen.json() == own | {"shared_with": None}
    assert (await bob.get(f"/v1/jobs/{job_id}/spec")).json()["workload"]["env"] == {"PASSWORD": None}
    for method, path, body in (
        ("POST", "cancel", None),
        ("POST", "extend", {"by": 60}),
        ("PUT", "shares/root", None),
        ("PUT", "shares/bob", None),
        ("DELETE", "shares/bob", None),
    ):
        refused = await bob.request(method, f"/v1/jobs/{job_id}/{path}", json=body)
        assert refused.status_code == 403, path
        assert refused.json()["detail"] == REFUSED.format(job_id=job_id), path
    assert (await alice.get(f"/v1/jobs/{job_id}")).json() == own
    await alice.post(f"/v1/jobs/{job_id}/cancel")
    assert (await bob.get(f"/v1/jobs/{job_id}/logs")).status_code == 200
    events = (await bob.get(f"/v1/jobs/{job_id}/events")).text
    assert "event: shared\n" in events
    assert "event: cancelled\n" in events


async def test_a_share_is_made_once_and_ended_once(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, root: httpx.AsyncClient
) -> None:
    job_id = await shared(alice)
    version = (await alice.get(f"/v1/jobs/{job_id}")).headers["etag"]
    again = await alice.put(f"/v1/jobs/{job_id}/shares/Bob")
    assert (again.status_code, again.json()["shared_with"], again.headers["etag"]) == (200, ["bob"], version)
    await alice.put(f"/v1/jobs/{job_id}/shares/root")
    ended = await alice.delete(f"/v1/jobs/{job_id}/shares/bob")
    assert (ended.status_code, ended.json()["shared_with"]) == (200, ["root"])
    assert (await alice.delete(f"/v1/jobs/{job_id}/shares/bob")).status_code == 404
    for path in ("", "/spec", "/events", "/logs"):
        gone = await bob.get(f"/v1/jobs/{job_id}{path}")
        assert gone.status_code == 404
        assert gone.json()["detail"] == f"You have no job {job_id}. `gpu-dev list` shows your jobs."
    assert (await root.delete(f"/v1/jobs/{job_id}/shares/root")).status_code == 200  # as administrator
    log = (await root.get("/v1/events", params={"subject": job_id})).json()["items"]
    assert [(event["kind"], event["actor"], event["data"]) for event in reversed(log)][1:] == [
        ("shared", "alice", {"user": "bob"}),
        ("shared", "alice", {"user": "root"}),
        ("unshared", "alice", {"user": "bob"}),
        ("unshared", "root", {"user": "root"}),
    ]


async def test_what_can_not_be_shared(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, root: httpx.AsyncClient, runtime: Runtime
) -> None:
    job_id = (await submitted(alice))["id"]
    async with runtime.uow() as uow:
        await uow.identities.create_user("dora", Role.USER, runtime.clock.now())
    assert (await root.delete("/v1/users/dora")).status_code == 200
    for client, user, status, code, words in (
        (alice, "alice", 409, "not_shareable", "is your own job"),
        (alice, "dora", 409, "user_disabled", "'dora' is disabled"),
        (alice, "nobody", 404, "not_found", "There is no user 'nobody'"),
        (root, "root", 403, "forbidden", "Only alice may share"),
        (root, "bob", 403, "forbidden", "Only alice may share"),
        (bob, "root", 404, "not_found", "You have no job"),
    ):
        refused = await client.put(f"/v1/jobs/{job_id}/shares/{user}")
        assert (refused.status_code, refused.json()["type"]) == (status, f"urn:gpu-dev:problem:{code}"), refused.text
        assert words in refused.json()["detail"]
    assert (await alice.get(f"/v1/jobs/{job_id}")).json()["shared_with"] == []


async def test_a_job_has_so_many_users_and_no_more(alice: httpx.AsyncClient, runtime: Runtime) -> None:
    job_id = await shared(alice)
    async with runtime.uow() as uow:
        await sql(
            uow,
            "WITH added AS (INSERT INTO users (name, role, created_at) "
            "SELECT 'user-' || n, 'user', now() FROM generate_series(2, :most) n RETURNING id) "
            "INSERT INTO job_shares SELECT :job, id, now() FROM added",
            job=job_id,
            most=MOST_USERS,
        )
    refused = await alice.put(f"/v1/jobs/{job_id}/shares/root")
    assert (refused.status_code, refused.json()["type"]) == (422, "urn:gpu-dev:problem:limit_exceeded")
    assert (await alice.put(f"/v1/jobs/{job_id}/shares/bob")).status_code == 200


async def test_shares_end_when_their_user_is_disabled(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, root: httpx.AsyncClient
) -> None:
    job_id = await shared(alice)
    assert (await root.delete("/v1/users/bob")).status_code == 200
    assert (await alice.get(f"/v1/jobs/{job_id}")).json()["shared_with"] == []
    assert (await root.post("/v1/users/bob/enable")).status_code == 200
    assert (await bob.get(f"/v1/jobs/{job_id}")).status_code == 404


async def test_who_is_disabled_at_the_same_moment_gets_no_share(
    alice: httpx.AsyncClient, root: httpx.AsyncClient
) -> None:
    job_id = (await submitted(alice))["id"]
    answers = await asyncio.gather(
        root.delete("/v1/users/bob"), *(alice.put(f"/v1/jobs/{job_id}/shares/bob") for _ in range(5))
    )
    assert {answer.status_code for answer in answers} <= {200, 409}
    assert (await alice.get(f"/v1/jobs/{job_id}")).json()["shared_with"] == []


async def test_shared_jobs_are_a_list_of_their_own(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, root: httpx.AsyncClient
) -> None:
    ids = [await shared(alice, name=f"job {number}") for number in range(3)]
    own = (await submitted(bob))["id"]
    await root.put(f"/v1/jobs/{(await submitted(root))['id']}/shares/bob")
    await alice.post(f"/v1/jobs/{ids[0]}/cancel")

    async def listed(**params: Any) -> list[str]:
        found: list[str] = []
        while True:
            page = (await bob.get("/v1/jobs", params={"shared": True, **params})).json()
            found += [job["id"] for job in page["items"]]
            assert all(job["shared_with"] is None for job in page["items"])
            if page["next_cursor"] is None:
                return found
            params["cursor"] = page["next_cursor"]

    assert [job["id"] for job in (await bob.get("/v1/jobs")).json()["items"]] == [own]
    assert (await listed())[1:] == ids[::-1]
    assert await listed(user="alice") == ids[::-1]
    assert await listed(user="alice", limit=1) == ids[::-1]
    assert await listed(user="nobody") == []
    assert await listed(user="alice", status=["cancelled"]) == ids[:1]
    assert await listed(user="alice", status=["queued", "running"], limit=1) == ids[:0:-1]
    assert (await alice.get("/v1/jobs?shared=true")).json()["items"] == []
    assert [job["shared_with"] for job in (await alice.get("/v1/jobs")).json()["items"]] == [["bob"]] * 3
    assert (await bob.get("/v1/jobs?cursor=WyJqb2JzIiw1XQ&shared=true")).status_code == 400


async def test_a_page_looks_at_so_many_shares(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_views, "SHARES_LOOKED_AT", 2)
    ids = [await shared(alice) for _ in range(3)]
    assert [job["id"] for job in (await bob.get("/v1/jobs?shared=true")).json()["items"]] == ids[:0:-1]

"""`after` over REST: what a job waits for, and refusals before anything is stored."""

from typing import Any

import httpx
import pytest

from reservation_core.domain.jobs.asked_dependencies import MOST_DEPENDENCIES
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.jobs.dependencies import settle_dependants
from tests.database.sql import sql
from tests.integration.api_service.callers import JOB, submitted


async def count(runtime: Runtime) -> int:
    """How many jobs are stored."""
    async with runtime.uow() as uow:
        return int((await sql(uow, "SELECT count(*) FROM reservations")).scalar_one())


async def test_a_job_says_what_it_waits_for(
    alice: httpx.AsyncClient, root: httpx.AsyncClient, runtime: Runtime
) -> None:
    first = (await submitted(alice, name="first"))["id"]
    second = await submitted(alice, after=[{"job": first}])
    needed = {"job": first, "when": "succeeded", "status": "queued", "state": "open"}
    assert (second["status"], second["reason"]["code"], second["after"]) == ("queued", "waiting_for_jobs", [needed])
    assert second["reason"]["detail"] == f"It waits for {first} to succeed. Its start is not known yet."
    seen = (await alice.get(f"/v1/jobs/{second['id']}")).json()
    assert (seen["after"], seen["reason"]) == (second["after"], second["reason"])
    listed = (await alice.get("/v1/jobs")).json()["items"]
    assert [job.get("after") for job in listed] == [[needed], None]
    [queued] = [job for job in (await alice.get("/v1/queue")).json()["items"] if job["id"] == second["id"]]
    assert (queued["queue_position"], queued["reason"]) == (None, second["reason"])
    spec = (await alice.get(f"/v1/jobs/{second['id']}/spec")).json()
    assert spec["after"] == [{"job": first, "when": "succeeded"}]
    assert "after" not in (await alice.get(f"/v1/jobs/{first}/spec")).json()
    third = await submitted(root, after=[{"job": first, "when": "failed"}, {"job": second["id"], "when": "ended"}])
    await alice.post(f"/v1/jobs/{first}/cancel")
    while await settle_dependants(runtime.uow, runtime.clock):
        pass
    over = (await alice.get(f"/v1/jobs/{second['id']}")).json()
    assert (over["status"], over["reason"]["code"]) == ("cancelled", "dependency_failed")
    assert over["after"] == [{**needed, "status": "cancelled", "state": "impossible"}]
    released = (await root.get(f"/v1/jobs/{third['id']}")).json()
    assert (released["status"], released["reason"]["code"]) == ("queued", "submitted")
    assert [needed["state"] for needed in released["after"]] == ["met", "met"]
    events = (await alice.get(f"/v1/jobs/{second['id']}/events", headers={"Accept": "application/json"})).text
    assert "cancelled" in events


@pytest.mark.parametrize(
    ("after", "field"),
    [
        ([{"job": "job-nope"}], "after.0.job: you have no job job-nope"),
        ([{"job": "train"}], "after.0.job: "),
        ([{"job": "bkg-552v3yxa"}], "after.0.job: "),
        ([{"job": "job-a", "when": "later"}], "after.0.when: "),
        ([{"job": "job-a", "within": 3}], "after.0.within: "),
        ([{"when": "ended"}], "after.0.job: "),
        ([{"job": "job-a"}, {"job": "job-a", "when": "ended"}], "after: job-a is named twice"),
        ([{"job": f"job-{number}"} for number in range(MOST_DEPENDENCIES + 1)], "after: "),
        ("job-a", "after: "),
        ({"job": "job-a"}, "after: "),
        (None, "after: "),
    ],
)
async def test_bad_input_is_refused_by_its_field(
    alice: httpx.AsyncClient, runtime: Runtime, after: Any, field: str
) -> None:
    refused = await alice.post("/v1/jobs", json={**JOB, "after": after})
    assert (refused.status_code, refused.headers["content-type"]) == (422, "application/problem+json")
    details = [rule["detail"] for rule in refused.json()["broken_rules"]]
    assert any(detail.startswith(field) for detail in details), details
    assert await count(runtime) == 0


async def test_jobs_of_others_do_not_exist(alice: httpx.AsyncClient, bob: httpx.AsyncClient, runtime: Runtime) -> None:
    theirs = (await submitted(bob))["id"]
    mine = (await submitted(alice))["id"]
    for dry_run in ({}, {"dry_run": "true"}):
        refused = await alice.post("/v1/jobs", params=dry_run, json={**JOB, "after": [{"job": mine}, {"job": theirs}]})
        assert (refused.status_code, refused.json()["type"]) == (422, "urn:gpu-dev:problem:no_such_job")
        assert [rule["detail"] for rule in refused.json()["broken_rules"]] == [f"after.1.job: you have no job {theirs}"]
    assert await count(runtime) == 2


async def test_as_many_as_allowed(alice: httpx.AsyncClient, runtime: Runtime) -> None:
    jobs = [(await submitted(alice))["id"] for _ in range(30)]
    async with runtime.uow() as uow:
        copies = (
            "INSERT INTO reservations (id, kind, user_id, status, reason_code, reason, gpus, nodes, duration, priority,"
            " workload, created_at, changed_at) SELECT 'job-x' || n, kind, user_id, status, reason_code, reason, gpus,"
            " nodes, duration, priority, workload, created_at, changed_at"
            " FROM reservations, generate_series(1, :more) AS n WHERE id = :id"
        )
        await sql(uow, copies, more=MOST_DEPENDENCIES - 30, id=jobs[0])
    jobs += [f"job-x{number}" for number in range(1, MOST_DEPENDENCIES - 29)]
    last = await submitted(alice, after=[{"job": job, "when": "ended"} for job in jobs])
    assert len(last["after"]) == MOST_DEPENDENCIES
    assert f"{jobs[0]} to end and for {MOST_DEPENDENCIES - 1} other jobs" in last["reason"]["detail"]


async def test_a_repeated_key_gives_one_job(alice: httpx.AsyncClient, runtime: Runtime) -> None:
    first = (await submitted(alice))["id"]
    body = {**JOB, "after": [{"job": first}]}
    answers = [await alice.post("/v1/jobs", json=body, headers={"Idempotency-Key": "k"}) for _ in range(2)]
    assert answers[0].json() == answers[1].json()
    assert await count(runtime) == 2
    other = {**JOB, "after": [{"job": first, "when": "ended"}]}
    assert (await alice.post("/v1/jobs", json=other, headers={"Idempotency-Key": "k"})).status_code == 409


async def test_a_dry_run_says_what_it_would_wait_for(alice: httpx.AsyncClient, runtime: Runtime) -> None:
    first = (await submitted(alice))["id"]

    async def verdict(when: str) -> dict[str, Any]:
        body = {**JOB, "after": [{"job": first, "when": when}]}
        answer = await alice.post("/v1/jobs", params={"dry_run": "true"}, json=body)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    waits = await verdict("ended")
    assert (waits["verdict"], waits["promised_start_at"], waits["queue_position"]) == ("accepted", None, None)
    assert [reason["code"] for reason in waits["reasons"]] == ["waiting_for_jobs"]
    await alice.post(f"/v1/jobs/{first}/cancel")
    assert [reason["code"] for reason in (await verdict("succeeded"))["reasons"]] == ["dependency_failed"]
    plain = (await alice.post("/v1/jobs", params={"dry_run": "true"}, json=JOB)).json()
    assert await verdict("ended") == plain
    assert await count(runtime) == 1

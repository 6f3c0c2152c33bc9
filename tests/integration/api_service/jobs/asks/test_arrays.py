"""Arrays over REST: their bounds, how they are shown, and their elements."""

from typing import Any

import httpx
import pytest

from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.jobs.arrays import RestingArrays, settle_arrays
from tests.integration.api_service.callers import JOB, submitted

NONE = {"queued": 0, "running": 0, "succeeded": 0, "failed": 0, "cancelled": 0, "expired": 0}


async def test_an_array_is_one_job_with_counts(alice: httpx.AsyncClient) -> None:
    accepted = await submitted(alice, array={"size": 10_000, "parallel": 8})
    counts = {**NONE, "size": 10_000, "parallel": 8, "queued": 10_000}
    assert accepted["array"] == counts
    [listed] = (await alice.get("/v1/jobs")).json()["items"]
    assert (listed["id"], listed["array"], listed["status"]) == (accepted["id"], counts, "queued")
    assert "array" not in await submitted(alice)
    spec = (await alice.get(f"/v1/jobs/{accepted['id']}/spec")).json()
    assert spec["array"] == {"size": 10_000, "parallel": 8}
    assert (await alice.post("/v1/jobs", json=spec)).status_code == 202


async def test_elements_are_paged_and_not_in_lists(alice: httpx.AsyncClient, runtime: Runtime) -> None:
    array_id = (await submitted(alice, array={"size": 300}, gpu_type="h100"))["id"]
    await settle_arrays(runtime.uow, runtime.clock, RestingArrays())
    assert len((await alice.get("/v1/jobs")).json()["items"]) == 1
    assert len((await alice.get("/v1/jobs", params={"status": "queued"})).json()["items"]) == 1
    found: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while True:
        page = (await alice.get(f"/v1/jobs/{array_id}/elements", params={"limit": 70, **cursor})).json()
        found += page["items"]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert [one["id"] for one in found] == [f"{array_id}.{index}" for index in range(300)]
    assert found[7]["element"] == {"array": array_id, "index": 7, "size": 300}
    assert {one["status"] for one in found} == {"queued"}
    for index in (0, 299):
        one = (await alice.get(f"/v1/jobs/{array_id}.{index}")).json()
        assert one | {"shared_with": None} == found[index]
    assert (await alice.get(f"/v1/jobs/{array_id}.300")).status_code == 404
    failed = await alice.get(f"/v1/jobs/{array_id}/elements", params={"status": "failed"})
    assert failed.json() == {"items": [], "next_cursor": None}
    queue = (await alice.get("/v1/queue")).json()
    assert [(total["jobs"], total["gpus"]) for total in queue["totals"]] == [(128, 128)]
    assert array_id not in {one["id"] for one in queue["items"]}


async def test_the_same_body_twice_with_one_key_is_one_array(alice: httpx.AsyncClient) -> None:
    body = {**JOB, "array": {"size": 5}}
    answers = [await alice.post("/v1/jobs", json=body, headers={"Idempotency-Key": "k"}) for _ in range(2)]
    assert answers[0].json() == answers[1].json()
    assert len((await alice.get("/v1/jobs")).json()["items"]) == 1
    other = await alice.post("/v1/jobs", json={**JOB, "array": {"size": 6}}, headers={"Idempotency-Key": "k"})
    assert other.status_code in (409, 422)


async def test_others_see_neither_the_array_nor_its_elements(alice: httpx.AsyncClient, bob: httpx.AsyncClient) -> None:
    array_id = (await submitted(alice, array={"size": 2}))["id"]
    for path in ("", "/elements", ".0", ".1/logs", ".0/cancel"):
        method = "POST" if path.endswith("cancel") else "GET"
        assert (await bob.request(method, f"/v1/jobs/{array_id}{path}")).status_code == 404
    shared = await alice.put(f"/v1/jobs/{array_id}/shares/bob")
    assert shared.status_code == 200, shared.text
    assert (await bob.get(f"/v1/jobs/{array_id}.1")).status_code == 200


async def test_cancelling_and_changing(alice: httpx.AsyncClient) -> None:
    array_id = (await submitted(alice, array={"size": 3}))["id"]
    extended = await alice.post(f"/v1/jobs/{array_id}/extend", json={"by": 60})
    assert (extended.status_code, "is an array" in extended.json()["detail"]) == (409, True)
    unmade = await alice.post(f"/v1/jobs/{array_id}.2/cancel")
    assert (unmade.status_code, "before it enters the queue" in unmade.json()["detail"]) == (409, True)
    cancelled = (await alice.post(f"/v1/jobs/{array_id}/cancel")).json()
    assert (cancelled["status"], cancelled["array"]["cancelled"]) == ("cancelled", 3)
    assert (await alice.get(f"/v1/jobs/{array_id}.2")).json()["status"] == "cancelled"
    assert (await alice.post(f"/v1/jobs/{array_id}/cancel")).status_code == 409
    assert (await alice.get(f"/v1/jobs/{array_id}/logs", params={"follow": "true"})).text == ""


async def test_what_only_elements_do_names_them(alice: httpx.AsyncClient, runtime: Runtime) -> None:
    array_id = (await submitted(alice, array={"size": 200}))["id"]
    await settle_arrays(runtime.uow, runtime.clock, RestingArrays())
    hint = f"Name one of them, such as {array_id}.0; `gpu-dev list --elements {array_id}` lists them."
    for path, body in (
        (f"{array_id}/app-tickets", {"port": 8888}),
        (f"{array_id}/extend", {"by": 60}),
        (f"{array_id}/keep", None),
    ):
        answer = await alice.post(f"/v1/jobs/{path}", json=body)
        assert (answer.status_code, "is an array" in answer.json()["detail"]) == (409, True), answer.text
        assert answer.json()["detail"].endswith(hint)
    for index, said in ((0, "is queued"), (199, "has not entered the queue yet")):
        answer = await alice.post(f"/v1/jobs/{array_id}.{index}/app-tickets", json={"port": 8888})
        assert (answer.status_code, said in answer.json()["detail"]) == (409, True), answer.text
    await alice.post(f"/v1/jobs/{array_id}/cancel")
    over = await alice.post(f"/v1/jobs/{array_id}.199/app-tickets", json={"port": 8888})
    assert (over.status_code, "its array is over" in over.json()["detail"]) == (409, True), over.text
    missing = await alice.post(f"/v1/jobs/{array_id}.200/app-tickets", json={"port": 8888})
    assert missing.status_code == 404


async def test_a_dry_run_stores_nothing(alice: httpx.AsyncClient) -> None:
    answer = await alice.post("/v1/jobs?dry_run=true", json={**JOB, "array": {"size": 5}})
    assert answer.status_code == 200, answer.text
    assert (await alice.get("/v1/jobs")).json()["items"] == []


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"array": {"size": 0}}, "array.size"),
        ({"array": {"size": 10_001}}, "array.size"),
        ({"array": {"size": "3"}}, "array.size"),
        ({"array": {"size": 3, "parallel": 0}}, "array.parallel"),
        ({"array": {"size": 3, "parallel": 10_001}}, "array.parallel"),
        ({"array": {"size": 3, "step": 2}}, "array.step"),
        ({"array": {}}, "array.size"),
        ({"array": [1, 2]}, "array"),
        ({"array": {"size": 3}, "workload": {}}, "an array needs a command"),
        ({"array": {"size": 3}, "booking_id": "bkg-7f3k9q2m"}, "can't run in a booking"),
        ({"after": [{"job": "job-7f3k9q2m.3"}]}, "after.0.job"),
        ({"after": [{"job": "job-7f3k9q2m.3"}]}, "wait for all of them, job-7f3k9q2m"),
    ],
)
async def test_what_cannot_be_made_is_refused_by_name(
    alice: httpx.AsyncClient, fields: dict[str, Any], said: str
) -> None:
    refused = await alice.post("/v1/jobs", json={**JOB, **fields})
    assert (refused.status_code, said in refused.text) == (422, True), refused.text
    assert (await alice.get("/v1/jobs")).json()["items"] == []


@pytest.mark.parametrize("job_id", ["job-7f3k9q2m.", "job-7f3k9q2m.01", "job-7f3k9q2m.10000", "job-7f3k9q2m.1.1"])
async def test_ids_of_no_element_are_refused(alice: httpx.AsyncClient, job_id: str) -> None:
    assert (await alice.get(f"/v1/jobs/{job_id}")).status_code in (404, 422)

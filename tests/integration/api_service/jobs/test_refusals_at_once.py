"""What refuses a job is said at once, whatever the refusals are of, in the answer and in the verdict."""

import httpx
import pytest

from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings.calendars import add_nodes
from tests.integration.api_service.callers import JOB
from tests.integration.api_service.policy.rules_set import put

IMPOSSIBLE = {
    "gpus": 8,
    "gpu_type": "b200",
    "duration": "P40D",
    "priority": 5,
    "workload": {"command": ["true"], "image": "pytorch"},
}
CODES = ["no_images", "no_such_type", "limit_exceeded", "forbidden", "max_gpus", "max_duration"]


@pytest.fixture(autouse=True)
async def lab(runtime: Runtime, root: httpx.AsyncClient) -> None:
    await add_nodes(runtime, titan=("h100", 4))
    await put(root, "default", max_gpus=4, max_duration="P2D")


async def test_all_refusals_are_in_one_answer(alice: httpx.AsyncClient) -> None:
    answer = await alice.post("/v1/jobs", json=IMPOSSIBLE)
    problem = answer.json()
    # The kind is the first one's, as when only one was told.
    assert (answer.status_code, problem["type"]) == (422, "urn:gpu-dev:problem:no_images")
    assert [rule["code"] for rule in problem["broken_rules"]] == CODES
    assert all(rule["detail"] in problem["detail"] for rule in problem["broken_rules"])


async def test_a_foreign_project_is_among_them(alice: httpx.AsyncClient) -> None:
    wanted = {**JOB, "workload": IMPOSSIBLE["workload"], "project": "vision"}
    problem = (await alice.post("/v1/jobs", json=wanted)).json()
    assert [rule["code"] for rule in problem["broken_rules"]] == ["no_images", "no_such_project"]


async def test_the_verdict_says_the_same(alice: httpx.AsyncClient) -> None:
    verdict = (await alice.post("/v1/policy/explain", json=IMPOSSIBLE)).json()
    assert (verdict["verdict"], [reason["code"] for reason in verdict["reasons"]]) == ("refused", CODES)


@pytest.mark.parametrize(
    ("fields", "status", "code", "rules"),
    [
        ({"duration": "P40D"}, 422, "limit_exceeded", ["limit_exceeded", "max_duration"]),
        ({"priority": 5}, 403, "forbidden", None),
        ({"gpus": 8}, 409, "not_permitted", ["max_gpus"]),
        ({"gpus": 8, "priority": 5}, 403, "forbidden", ["forbidden", "max_gpus"]),
    ],
)
async def test_one_refusal_is_told_as_before(
    alice: httpx.AsyncClient, fields: dict[str, object], status: int, code: str, rules: list[str] | None
) -> None:
    answer = await alice.post("/v1/jobs", json={**JOB, **fields})
    problem = answer.json()
    assert (answer.status_code, problem["type"]) == (status, f"urn:gpu-dev:problem:{code}")
    assert [rule["code"] for rule in problem.get("broken_rules", [])] == (rules or [])

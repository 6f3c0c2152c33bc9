"""Retries over REST: their bounds, and how they are shown."""

from typing import Any

import httpx
import pytest

from tests.integration.api_service.callers import JOB, submitted

ALL = ["failed", "node_lost", "preempted"]


async def test_they_are_shown_with_the_job_and_its_spec(alice: httpx.AsyncClient) -> None:
    accepted = await submitted(alice, retries={"max": 3})
    assert (accepted["attempt"], accepted["retries"]) == (0, {"max": 3, "on": ALL, "done": 0})
    job = (await alice.get(f"/v1/jobs/{accepted['id']}")).json()
    assert (job["attempt"], job["retries"]) == (0, accepted["retries"])
    spec = (await alice.get(f"/v1/jobs/{accepted['id']}/spec")).json()
    assert spec["retries"] == {"max": 3, "on": ALL}
    assert (await alice.post("/v1/jobs", json=spec)).status_code == 202
    assert (await submitted(alice))["retries"] is None


@pytest.mark.parametrize(
    ("retries", "field"),
    [
        ({"max": 0}, "retries.max"),
        ({"max": 101}, "retries.max"),
        ({"max": 1.5}, "retries.max"),
        ({"max": "1"}, "retries.max"),
        ({}, "retries.max"),
        ({"max": 1, "on": []}, "retries.on"),
        ({"max": 1, "on": ["cancelled"]}, "retries.on.0"),
        ({"max": 1, "on": [*ALL, "failed"]}, "retries.on"),
        ({"max": 1, "pause": 1}, "retries.pause"),
        (3, "retries"),
    ],
)
async def test_what_is_out_of_bounds_is_refused_by_name(alice: httpx.AsyncClient, retries: Any, field: str) -> None:
    refused = await alice.post("/v1/jobs", json={**JOB, "retries": retries})
    assert refused.status_code == 422
    assert field in refused.text
    assert (await alice.get("/v1/jobs")).json()["items"] == []


async def test_an_attempt_that_there_was_not_has_no_log(alice: httpx.AsyncClient) -> None:
    job = await submitted(alice)
    for query in ({"attempt": 1}, {"attempt": 1, "follow": "true"}):
        answer = await alice.get(f"/v1/jobs/{job['id']}/logs", params=query)
        assert (answer.status_code, "has had no GPUs so far" in answer.json()["detail"]) == (404, True)
    assert (await alice.get(f"/v1/jobs/{job['id']}/logs", params={"attempt": 0})).status_code == 422

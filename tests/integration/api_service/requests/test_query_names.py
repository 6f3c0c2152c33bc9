"""Calls that change something refuse names in the address that they don't know, and do nothing."""

from typing import Any

import httpx
import pytest

from api_service.requests.query_names import known_names
from api_service.routes.bookings import bookings
from api_service.routes.jobs import jobs
from api_service.routes.people import tokens, users
from api_service.routes.policy import policy
from tests.integration.api_service.callers import JOB


@pytest.mark.parametrize(
    ("method", "path", "name", "takes", "body"),
    [
        ("POST", "/v1/jobs", "dry-run", "it takes dry_run", JOB),
        ("POST", "/v1/jobs", "Dry_run", "it takes dry_run", JOB),
        ("POST", "/v1/jobs/job-1/cancel", "dry_run", "it takes none", None),
        ("POST", "/v1/bookings", "dryrun", "it takes dry_run", {"gpus": 1, "duration": "PT1H"}),
        ("DELETE", "/v1/tokens", "users", "it takes user", None),
        ("PUT", "/v1/policy/default", "dry-run", "it takes dry_run", {"max_gpus": 4}),
    ],
)
async def test_a_mistyped_name_is_refused(
    root: httpx.AsyncClient, method: str, path: str, name: str, takes: str, body: dict[str, Any] | None
) -> None:
    answer = await root.request(method, path, params={name: "true"}, json=body)
    problem = answer.json()
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert problem["type"] == "urn:gpu-dev:problem:invalid_request"
    assert takes in problem["detail"]
    assert problem["broken_rules"] == [
        {"code": "extra_forbidden", "detail": f"query.{name}: is not known here; leave it out"}
    ]


async def test_a_mistyped_dry_run_submits_nothing(alice: httpx.AsyncClient) -> None:
    assert (await alice.post("/v1/jobs?dry-run=true", json=JOB)).status_code == 422
    assert (await alice.post("/v1/jobs?dry_run=true&verbose=1", json=JOB)).status_code == 422
    assert (await alice.get("/v1/jobs")).json()["items"] == []


async def test_strangers_hear_nothing_of_names(alice: httpx.AsyncClient) -> None:
    del alice.headers["Authorization"]
    assert (await alice.post("/v1/jobs?dry-run=true", json=JOB)).status_code == 401


def test_the_names_of_all_kinds_of_routes_are_known() -> None:
    """Read by the framework one by one or as a model, or by the route itself."""
    found = {
        (method, route.path): known_names(route)
        for router in (bookings.router, jobs.router, policy.router, tokens.router, users.router)
        for route in router.routes
        for method in route.methods
    }
    assert found["POST", "/v1/jobs"] == found["POST", "/v1/bookings"] == {"dry_run"}
    assert found["DELETE", "/v1/bookings/{booking_id}"] == {"series"}
    assert found["DELETE", "/v1/users/{name}"] == {*users.DisableQuery.model_fields}
    assert found["POST", "/v1/jobs/{job_id}/cancel"] == set()

"""A list of no jobs speaks of what was asked for, and of nothing else."""

import json

import httpx
import pytest
from typer.testing import CliRunner

from gpu_dev.commands.jobs import jobs
from gpu_dev.commands.jobs.empty_lists import listed_jobs
from gpu_dev.display.calendar_views import bookings_of
from reservation_core.domain.statuses import JobStatus
from tests.unit.gpu_dev.examples import a_client

FAILED, QUEUED = JobStatus.FAILED, JobStatus.QUEUED


@pytest.mark.parametrize(
    ("statuses", "all_", "user", "shared", "array_id", "begins"),
    [
        ((), False, None, False, None, "No jobs wait or run. Start one: "),
        ((), True, None, False, None, "No jobs yet. Start one: "),
        ((FAILED,), False, None, False, None, "No job is failed. All jobs: gpu-dev list --all"),
        ((FAILED, QUEUED, FAILED), True, None, False, None, "No job is failed or queued. All jobs: "),
        ((), False, "ben", False, None, "No job of ben waits or runs. Only administrators see other users' jobs, "),
        ((), True, "ben", False, None, "ben has no job. Only administrators see other users' jobs, "),
        ((QUEUED,), False, "ben", False, None, "No job of ben is queued. Only administrators see "),
        ((), False, None, True, None, "No job that is shared with you waits or runs. Ended ones: gpu-dev list"),
        ((), True, None, True, None, "No job is shared with you"),
        ((FAILED,), False, "ben", True, None, "No job of ben that is shared with you is failed"),
        ((FAILED,), False, None, False, "job-1qrc0x82", "No element of job-1qrc0x82 is failed. All elements: "),
    ],
)  # fmt: skip
def test_an_empty_list_says_what_was_asked_for(
    statuses: tuple[JobStatus, ...], all_: bool, user: str | None, shared: bool, array_id: str | None, begins: str
) -> None:
    words = listed_jobs(statuses, all_=all_, user=user, shared=shared, array_id=array_id).empty
    assert words.startswith(begins)
    assert ("administrators" in words) == (user is not None and not shared)


@pytest.mark.parametrize(
    ("me", "is_admin", "user", "says"),
    [("bob", False, "alice", True), ("bob", False, "bob", False), ("root", True, "alice", False)],
)
def test_only_a_list_of_jobs_that_are_not_seen_says_who_sees_them(
    me: str, is_admin: bool, user: str, says: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/users/me":
            role = "admin" if is_admin else "user"
            asked = {"name": me, "role": role, "created_at": "2026-03-01T12:00:00Z", "disabled_at": None}
            return httpx.Response(200, json=asked)
        if request.url.path == "/v1/users" and not is_admin:
            problem = {"type": "urn:gpu-dev:problem:forbidden", "title": "Forbidden", "status": 403, "detail": "No."}
            return httpx.Response(
                403, content=json.dumps(problem), headers={"content-type": "application/problem+json"}
            )
        return httpx.Response(200, json={"items": [], "next_cursor": None})

    monkeypatch.setattr(jobs, "client_for", lambda _ctx: a_client(handler))
    answer = CliRunner().invoke(jobs.list_app, ["--user", user])
    assert answer.output.startswith(f"No job of {user} waits or runs"), answer.output
    assert ("Only administrators" in answer.output) == says


def test_of_filtered_bookings_none_says_whose_were_asked_for() -> None:
    assert bookings_of("ben").empty == "No booking of ben matches. Everybody's: gpu-dev book list --all"
    assert bookings_of(None).empty == "No booking matches. Everybody's: gpu-dev book list --all"

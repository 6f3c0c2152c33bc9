"""`--test-only` at a server that knows no dry runs: it submits the job, which must not stay."""

import importlib.metadata
from datetime import timedelta

import httpx
import pytest

from gpu_dev.errors import ApiError, ExitCode, OlderServerError
from gpu_dev.wire.jobs import JobSubmit, Workload
from tests.unit.gpu_dev.examples import a_client, job_json

OWN = importlib.metadata.version("gpu-dev-server")
REQUEST = JobSubmit(gpus=2, duration=timedelta(hours=4), workload=Workload())
JSON = {"content-type": "application/json", "gpu-dev-version": "0.1.0"}


def test_the_job_that_it_stored_is_cancelled_and_the_server_called_older() -> None:
    asked: list[str] = []

    def older(request: httpx.Request) -> httpx.Response:
        asked.append(f"{request.method} {request.url.raw_path.decode()}")
        is_cancelled = request.url.path.endswith("/cancel")
        status = "cancelled" if is_cancelled else "queued"
        return httpx.Response(200 if is_cancelled else 202, text=job_json(status=status), headers=JSON)

    with a_client(older) as client, pytest.raises(OlderServerError) as caught:
        client.would_submit(REQUEST)
    assert asked == ["POST /v1/jobs?dry_run=true", "POST /v1/jobs/job-7f3k9q2m/cancel"]
    assert str(caught.value).startswith(
        f"This server (0.1.0) is older than this command line ({OWN}): "
        "it has no dry runs, and the job was cancelled at once. "
    )


def test_a_job_that_can_not_be_cancelled_is_not_passed_over_in_silence() -> None:
    def older(request: httpx.Request) -> httpx.Response:
        if not request.url.path.endswith("/cancel"):
            return httpx.Response(202, text=job_json(), headers=JSON)
        problem = {"type": "urn:gpu-dev:problem:already_final", "title": "Conflict", "status": 409, "detail": "Over."}
        return httpx.Response(409, json=problem, headers={"content-type": "application/problem+json"})

    with a_client(older) as client, pytest.raises(ApiError) as caught:
        client.would_submit(REQUEST)
    assert (caught.value.problem.status, caught.value.exit_code) == (409, ExitCode.REFUSED)
    assert caught.value.next_command == "gpu-dev show job-7f3k9q2m"

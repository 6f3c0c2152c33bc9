"""A system that is up and called over HTTP: what is not true of it fails the demo."""

import sys
import time
from collections.abc import Callable
from typing import Any

import httpx

PATIENCE_S = 30.0
_FINAL = ("succeeded", "failed", "cancelled", "expired")


class DemoFailedError(Exception):
    """A check failed; the text names it."""


class CheckedSystem:
    """Calls by `http`, the ids of the jobs that were `submitted`, and how many checks have held."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http
        self.submitted: list[str] = []
        self.checked = 0

    def submit(self, body: dict[str, Any]) -> dict[str, Any]:
        """Submit a job. Raises DemoFailedError where it is refused."""
        answer = self.http.post("/v1/jobs", json=body)
        self.check(answer.status_code == 202, f"POST /v1/jobs is accepted (it is {answer.status_code}: {answer.text})")
        job: dict[str, Any] = answer.json()
        self.submitted.append(job["id"])
        say(f"POST /v1/jobs -> 202 {job['id']} ({body['name']}, {body['gpus']} GPU(s))")
        return job

    def job(self, job_id: str) -> dict[str, Any]:
        """The job as it is now."""
        job: dict[str, Any] = self.http.get(f"/v1/jobs/{job_id}").raise_for_status().json()
        return job

    def planned(self, job_id: str) -> dict[str, Any] | None:
        """The job, once the planner has estimated its start."""
        job = self.job(job_id)
        planned = job["reason"]["code"] != "submitted" and job["queue_position"] is not None
        return job if planned and job["estimated_start_at"] is not None else None

    def ended(self, job_id: str) -> dict[str, Any] | None:
        """The job, once it is over."""
        job = self.job(job_id)
        return job if job["status"] in _FINAL else None

    def free_gpus(self) -> list[dict[str, Any]]:
        """The GPUs that nobody holds."""
        gpus = self.http.get("/v1/gpus", params={"limit": 500}).raise_for_status().json()["items"]
        return [gpu for gpu in gpus if gpu["state"] == "free"]

    def check(self, true: bool, what: str) -> None:
        """Count a check. Raises DemoFailedError if it does not hold."""
        if not true:
            raise DemoFailedError(f"not true: {what}")
        self.checked += 1

    def wait_until(self, condition: Callable[[], Any], what: str, within_s: float = PATIENCE_S) -> Any:
        """Wait for a true answer and return it. Raises DemoFailedError if that takes too long."""
        deadline = time.monotonic() + within_s
        while not (answer := condition()):
            if time.monotonic() > deadline:
                raise DemoFailedError(f"not within {within_s:.0f} s: {what}")
            time.sleep(0.05)
        self.checked += 1
        return answer


def title(text: str) -> None:
    """Begin a chapter."""
    sys.stdout.write(f"\n== {text}\n")
    sys.stdout.flush()


def say(text: str) -> None:
    """Print a line."""
    sys.stdout.write(f"   {text}\n")
    sys.stdout.flush()

"""`--after` by the command line, on a local cluster that runs the jobs."""

import json
from typing import Any

import pytest

from tests.integration.gpu_dev.conftest import System
from tests.waiting import eventually_sync


def submit(system: System, *words: str) -> str:
    """The id of a job."""
    done = system.cli("submit", "-g", "1", "-d", "5m", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def job_of(system: System, job_id: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(system.cli("show", job_id, "-o", "json").stdout)
    return found


def ended(system: System, job_id: str) -> dict[str, Any]:
    """The job once it is over."""
    eventually_sync(lambda: job_of(system, job_id)["finished_at"] is not None)
    return job_of(system, job_id)


def test_jobs_run_one_after_another(system: System) -> None:
    first = submit(system, "-n", "first", "--", "sleep", "300")
    waits = system.cli("submit", "-g", "1", "-d", "5m", "--after", "ok:first", "--", "true")
    second = waits.stdout.strip()
    assert f"It waits for {first} to succeed. Its start is not known yet." in " ".join(waits.stderr.split())
    started = submit(system, "--after", f"started:{first}", "--", "true")
    cleaning = submit(system, "--after", f"failed:{first}", "--after", f"any:{second}", "--", "true")
    assert ended(system, started)["status"] == "succeeded"
    held = job_of(system, second)
    assert (held["status"], held["reason"]["code"], held["queue_position"]) == ("queued", "waiting_for_jobs", None)
    assert f"ok:{first} (running)" in system.cli("show", second).stdout
    explained = system.cli("explain", second).stdout
    assert f"{first} is running now." in explained
    assert f"See when {first} ends: gpu-dev explain {first}" in explained
    eventually_sync(lambda: job_of(system, second)["promised_start_at"] is not None)
    held = job_of(system, second)
    assert held["promised_start_at"] >= held["estimated_start_at"] >= job_of(system, first)["ends_at"]
    starts = system.cli("explain", second).stdout
    assert f", after {first} ends." in starts
    assert "Promised start: " in starts
    asked = system.cli("submit", "--test-only", "-g", "1", "-d", "5m", "--after", second, "--", "true")
    assert "Would start by " in asked.stdout, asked.stderr
    assert "waiting_for_jobs" in system.cli("queue").stdout
    ran = system.cli("cancel", first)
    assert ran.returncode == 0, ran.stderr
    over = ended(system, second)
    assert (over["status"], over["reason"]["code"]) == ("cancelled", "dependency_failed")
    assert f"gpu-dev submit --again {second}" in system.cli("explain", second).stdout
    assert ended(system, cleaning)["status"] == "succeeded"
    again = system.cli("run", "--again", second)
    assert again.returncode == 0, again.stderr


def test_run_follows_a_job_that_waits(system: System) -> None:
    first = submit(system, "--", "true")
    done = system.cli("run", "-g", "1", "-d", "5m", "--after", first, "--", "echo", "after it")
    assert (done.returncode, done.stdout) == (0, "after it\n"), done.stderr
    failed = submit(system, "--", "false")
    given_up = system.cli("run", "-g", "1", "-d", "5m", "--after", failed, "--", "true")
    assert given_up.returncode == 1
    assert "dependency_failed" in given_up.stderr
    never = system.cli("submit", "-g", "1", "-d", "5m", "--after", failed, "--", "true")
    assert f"{failed} has failed, so this job can never start." in " ".join(never.stderr.split())
    unheard = system.cli("logs", ended(system, never.stdout.strip())["id"])
    assert (unheard.returncode, unheard.stdout) == (0, "")
    assert "has no output: it never started." in unheard.stderr


def test_verdicts_say_what_a_job_would_wait_for(system: System) -> None:
    first = submit(system, "--", "sleep", "60")
    for option in ("--dry-run", "--test-only"):
        said = system.cli("submit", "-g", "1", "-d", "5m", "--after", f"any:{first}", option, "--", "true")
        assert said.returncode == 0, said.stderr
        assert f"It waits for {first} to end." in " ".join(said.stdout.split())
    system.cli("cancel", first)


@pytest.mark.parametrize(
    ("after", "code", "said"),
    [
        ("later:job-7f3k9q2m", 2, "Write --after ok:ID, any:ID, failed:ID or started:ID"),
        ("ok:", 2, "Write --after ok:ID, any:ID, failed:ID or started:ID"),
        ("ok:job-7f3k9q2m", 4, "You have no job job-7f3k9q2m to wait for."),
        ("no such name", 3, "nor the name of a job of yours"),
    ],
)
def test_what_is_refused(system: System, after: str, code: int, said: str) -> None:
    refused = system.cli("submit", "-g", "1", "-d", "5m", "--after", after, "--", "true")
    assert (refused.returncode, said in " ".join(refused.stderr.split())) == (code, True), refused.stderr
    assert "after.0" not in refused.stderr, "a path of REST"

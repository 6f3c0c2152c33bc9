"""Retries by the command line, with the output of each attempt."""

import json

import pytest

from tests.integration.gpu_dev.conftest import System

FAILS_ONCE = 'echo "attempt $GPU_DEV_ATTEMPT"; test "$GPU_DEV_ATTEMPT" = 2'


def jobs(system: System) -> list[dict[str, object]]:
    return list(json.loads(system.cli("list", "--all", "-o", "json").stdout)["items"])


def test_a_command_that_fails_runs_again_and_its_outputs_are_kept_apart(system: System) -> None:
    ran = system.cli("run", "-g1", "-d1m", "--retries", "3", "--", "sh", "-c", FAILS_ONCE)
    assert (ran.returncode, ran.stdout) == (0, "attempt 1\nattempt 2\n"), ran.stderr
    [job] = jobs(system)
    assert (job["attempt"], job["retries"]) == (2, {"max": 3, "on": ["failed", "node_lost", "preempted"], "done": 1})
    assert system.cli("logs", str(job["id"])).stdout == "attempt 2\n"
    assert system.cli("logs", str(job["id"]), "--follow").stdout == "attempt 2\n"
    assert system.cli("logs", str(job["id"]), "--attempt", "1").stdout == "attempt 1\n"
    none = system.cli("logs", str(job["id"]), "--attempt", "3")
    assert (none.returncode, "has no attempt 3: its newest one is 2" in none.stderr) == (3, True), none.stderr
    shown = system.cli("show", str(job["id"])).stdout
    assert "1 of 3 (on failed, node_lost, preempted)" in shown
    events = [event["kind"] for event in json.loads(system.cli("events", str(job["id"]), "-o", "json").stdout)["items"]]
    assert events.count("retried") == 1
    again = system.cli("run", "--again", str(job["id"]))
    assert (again.returncode, again.stdout) == (0, ran.stdout), again.stderr


def test_a_command_that_keeps_failing_fails_with_its_last_exit_code(system: System) -> None:
    ran = system.cli("run", "-g1", "-d1m", "--retries", "1", "--", "sh", "-c", "echo $GPU_DEV_ATTEMPT; exit 7")
    assert (ran.returncode, ran.stdout) == (7, "1\n2\n"), ran.stderr


def test_requeue_is_not_for_commands_that_fail(system: System) -> None:
    ran = system.cli("run", "-g1", "-d1m", "--requeue", "--", "sh", "-c", "echo $GPU_DEV_ATTEMPT; exit 7")
    assert (ran.returncode, ran.stdout) == (7, "1\n"), ran.stderr
    [job] = jobs(system)
    assert job["retries"] == {"max": 10, "on": ["node_lost", "preempted"], "done": 0}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("submit", "-g1", "-d1m", "--retries", "0"), "--retries"),
        (("submit", "-g1", "-d1m", "--retries", "101"), "--retries"),
        (("logs", "x", "--follow", "--attempt", "1"), "Leave --attempt out"),
    ],
)
def test_what_can_not_be_meant_is_refused(unreachable: System, words: tuple[str, ...], said: str) -> None:
    done = unreachable.cli(*words)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr

"""Preemptible jobs by the command line."""

import json
from typing import Any

import pytest

from tests.integration.gpu_dev.conftest import System
from tests.waiting import eventually_sync

WAITS = ("sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done")


def shown(system: System, job: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(system.cli("show", job, "-o", "json").stdout)
    return found


def test_the_options_come_to_the_job_and_are_shown(system: System) -> None:
    terms = ("--preemptible", "--min-runtime", "1m", "--signal", "USR1@30")
    job = system.cli("submit", "-g1", "-d2m", *terms, "--", *WAITS).stdout.strip()
    found = shown(system, job)
    assert found["preemption"] == {"min_runtime": "PT1M", "done": 0, "asked_at": None}
    assert found["end_signal"] == {"signal": "USR1", "before": "PT30S"}
    table = system.cli("show", job).stdout
    assert "keeps its GPUs for 1m" in table
    assert "USR1 30s before its end" in table
    again = system.cli("submit", "--again", job).stdout.strip()
    assert shown(system, again)["preemption"] == found["preemption"]
    assert shown(system, again)["end_signal"] == found["end_signal"]
    for one in (job, again):
        system.cli("cancel", one)


def test_a_session_by_sbatch_has_its_signal(system: System) -> None:
    job = system.cli("submit", "-g1", "-d2m", "--signal", "usr1", "--", *WAITS).stdout.strip()
    assert shown(system, job)["end_signal"] == {"signal": "USR1", "before": "PT1M"}
    assert "preemption" not in shown(system, job) or shown(system, job)["preemption"] is None
    system.cli("cancel", job)


def test_a_booking_for_now_gets_the_gpus_of_a_preemptible_job(system: System) -> None:
    yielding = system.cli("submit", "-g4", "-d10m", "--preemptible", "--", *WAITS).stdout.strip()
    eventually_sync(lambda: shown(system, yielding)["status"] == "running")
    said = system.cli("book", "create", "-g", "2", "-s", "now", "-d", "10m", who="bob")
    assert said.returncode == 0, said.stderr
    [booking] = json.loads(system.cli("book", "list", "-o", "json", who="bob").stdout)["items"]
    within = system.cli("submit", "-g2", "-d5m", "--booking", booking["id"], "--", *WAITS, who="bob").stdout.strip()
    job = ("show", within, "-o", "json")
    eventually_sync(lambda: json.loads(system.cli(*job, who="bob").stdout)["status"] == "running")
    found = shown(system, yielding)
    assert (found["status"], found["preemption"]["done"]) == ("queued", 1)
    for one, who in ((within, "bob"), (yielding, "alice")):
        system.cli("cancel", one, who=who)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--signal", "KILL@3"), "The signals are USR1, USR2, INT, HUP, QUIT, ALRM, CONT, TERM."),
        (("--signal", "USR1@3601"), "--signal"),
        (("--min-runtime", "5m"), "--min-runtime"),
        (("--preemptible", "--min-runtime", "5m"), "--min-runtime"),
        (("--preemptible", "--min-runtime", "soon"), "soon"),
        (("--preemptible", "--booking", "bkg-1"), "booking"),
    ],
)
def test_what_can_not_be_meant_is_refused(unreachable: System, words: tuple[str, ...], said: str) -> None:
    done = unreachable.cli("submit", "-g1", "-d1m", *words, "--", "true")
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr

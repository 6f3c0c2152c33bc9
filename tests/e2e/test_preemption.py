"""A preemptible job runs on GPUs that nobody needs, gives them back when somebody does, and goes on afterwards."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.systems.system_process import SystemProcess, ended
from tests.waiting import eventually_sync

NOTES_ITS_SIGNALS = """
trap 'echo "attempt $GPU_DEV_ATTEMPT: USR1"' USR1
trap 'echo "attempt $GPU_DEV_ATTEMPT: TERM"; exit 0' TERM
echo "attempt $GPU_DEV_ATTEMPT: begins"
while [ "$GPU_DEV_ATTEMPT" = 1 ]; do sleep 0.1; done
"""


@pytest.fixture
def system(database_url: str, tmp_path: Path) -> Iterator[SystemProcess]:
    system = SystemProcess(
        tmp_path / "home",
        forked=True,
        GPU_DEV_DATABASE_URL=database_url,
        GPU_DEV_LOCAL_GPUS="h100:2",
    )
    yield system
    system.clear()


def job(http: httpx.Client, job_id: str) -> dict[str, Any]:
    found: dict[str, Any] = http.get(f"/v1/jobs/{job_id}").raise_for_status().json()
    return found


def submitted(system: SystemProcess, http: httpx.Client, gpus: int, *command: str, **more: Any) -> str:
    body = {"gpus": gpus, "duration": 300, "workload": {"command": command}, **more}
    answer = http.post("/v1/jobs", json=body)
    assert answer.status_code == 202, answer.text
    system.jobs.append(answer.json()["id"])
    return system.jobs[-1]


def running(http: httpx.Client, job_id: str) -> dict[str, Any]:
    return eventually_sync(lambda: (found := job(http, job_id))["status"] == "running" and found)  # type: ignore[return-value]


def log(http: httpx.Client, job_id: str, attempt: int) -> str:
    """What a job's command itself said; its shell says besides which of its children a signal ended."""
    lines = http.get(f"/v1/jobs/{job_id}/logs", params={"attempt": attempt}).text.splitlines(keepends=True)
    return "".join(line for line in lines if line.startswith("attempt"))


def kinds(http: httpx.Client, job_id: str) -> list[str]:
    found = http.get("/v1/events", params={"subject": job_id, "order": "oldest", "limit": 200}).raise_for_status()
    return [event["kind"] for event in found.json()["items"]]


def test_it_gives_its_gpus_to_a_job_that_needs_them_and_runs_again(system: SystemProcess) -> None:
    with system.start() as http:
        terms = {"preemptible": True, "end_signal": {"signal": "USR1", "before": 1}}
        yielding = submitted(system, http, 2, "bash", "-c", NOTES_ITS_SIGNALS, **terms)
        running(http, yielding)
        eventually_sync(lambda: "begins" in log(http, yielding, 1))
        needed = submitted(system, http, 2, "sleep", "1")
        assert ended(http, needed)["status"] == "succeeded"
        last = ended(http, yielding)
        assert (last["status"], last["attempt"]) == ("succeeded", 2)
        assert last["preemption"] == {"min_runtime": "PT0S", "done": 1, "asked_at": None}
        assert log(http, yielding, 1) == "attempt 1: begins\nattempt 1: USR1\nattempt 1: TERM\n"
        assert log(http, yielding, 2) == "attempt 2: begins\n"
        life = [kind for kind in kinds(http, yielding) if kind != "exited"]  # which its removal may hide
        asked = life.index("preemption_asked")
        assert life[asked:-1] == ["preemption_asked", "preempted", "requeued", "allocated", "started", "finished"]
        assert "start_promise_missed" not in kinds(http, needed)


def test_it_is_ended_and_queued_again_though_all_is_killed_between_signal_and_end(system: SystemProcess) -> None:
    with system.start() as http:
        terms = {"preemptible": True, "end_signal": {"signal": "USR1", "before": 4}}
        yielding = submitted(system, http, 2, "bash", "-c", NOTES_ITS_SIGNALS, **terms)
        running(http, yielding)
        eventually_sync(lambda: "begins" in log(http, yielding, 1))
        needed = submitted(system, http, 1, "true")
        eventually_sync(lambda: "USR1" in log(http, yielding, 1))
        assert job(http, yielding)["preemption"]["asked_at"] is not None
        system.end(signal.SIGKILL)
    with system.start() as http:
        assert ended(http, needed)["status"] == "succeeded"
        last = ended(http, yielding)
        assert (last["status"], last["attempt"], last["preemption"]["done"]) == ("succeeded", 2, 1)
        assert log(http, yielding, 1).endswith("attempt 1: TERM\n")
        assert "start_promise_missed" not in kinds(http, needed)

"""The line at a job's end: what it used of its GPUs, from a recording, over the command line."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.systems.system_process import ROOT, SystemProcess
from tests.waiting import eventually_sync

HALF = "at_s,gpu,utilisation,memory_used\n0,0,0.5,1000000\n0,1,0,0\n"


@pytest.fixture
def system(database_url: str, tmp_path: Path) -> Iterator[SystemProcess]:
    recording = tmp_path / "use.csv"
    recording.write_text(HALF)
    system = SystemProcess(
        tmp_path / "home",
        forked=True,
        GPU_DEV_DATABASE_URL=database_url,
        GPU_DEV_LOCAL_GPUS="h100:2",
        GPU_DEV_LOCAL_USE=str(recording),
        GPU_DEV_SAMPLE_EVERY_S="1",
    )
    yield system
    system.clear()


def cli(system: SystemProcess, *words: str) -> subprocess.CompletedProcess[str]:
    """A command, with what it prints and says."""
    environment = {"GPU_DEV_SERVER": system.url, "GPU_DEV_TOKEN": system.token, "HOME": str(system.home), "TZ": "UTC"}
    command = [sys.executable, "-m", "gpu_dev", *words]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_run_and_logs_say_in_the_end_what_a_job_used_of_its_gpus(system: SystemProcess) -> None:
    with system.start() as http:
        ran = cli(system, "run", "--gpus", "2", "--for", "10m", "--", "sleep", "8")
        assert ran.returncode == 0, ran.stderr
        [job] = [job["id"] for job in http.get("/v1/jobs").json()["items"]]
        said = re.search(rf"{job} used (\S+) of 2 GPUs", ran.stderr)
        assert said is not None, ran.stderr
        assert 0.3 <= float(said[1]) <= 0.7
        # The same figure, also later and by other ways.
        eventually_sync(lambda: f"{job} used {said[1]} of 2 GPUs" in cli(system, "logs", "-f", job).stderr)
        assert f"used {said[1]} of 2 GPUs" in cli(system, "metrics", job).stdout

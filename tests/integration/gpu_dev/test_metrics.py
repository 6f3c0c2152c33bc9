"""`gpu-dev metrics` against a whole system."""

import json
import re
from datetime import UTC, datetime, timedelta

from tests.integration.gpu_dev.conftest import System
from tests.waiting import eventually_sync


def test_simulated_gpus_have_no_data(system: System) -> None:
    job = system.cli("submit", "--gpus", "2", "--for", "1h", "--name", "idle", "--", "sleep", "1h").stdout.strip()
    assert job.startswith("job-")
    waiting = system.cli("metrics", job)
    assert waiting.returncode == 0, waiting.stderr

    def runs() -> bool:
        return bool(json.loads(system.cli("show", job, "-o", "json").stdout)["status"] == "running")

    eventually_sync(runs)
    shown = system.cli("metrics", "idle")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.count("no data") == 2
    assert "Simulated GPUs: the figures are from a recording, or there are none." in shown.stdout
    found = json.loads(system.cli("metrics", job, "--last", "5m", "--step", "10s", "--json").stdout)
    assert (found["simulated"], found["step"], [gpu["points"] for gpu in found["gpus"]]) == (True, "PT10S", [[], []])
    assert system.cli("metrics", job, "-o", "csv").stdout.startswith("node,gpu,uuid,gpu_type,at,samples,")
    refused = system.cli("metrics", job, "--step", "90s", "-o", "csv")
    assert refused.returncode != 0
    assert "must be whole minutes" in refused.stderr
    assert system.cli("metrics", job, "--last", "long").returncode == 2
    assert system.cli("cancel", job).returncode == 0


def test_a_time_after_the_end_of_a_job_is_no_error(system: System) -> None:
    job = system.cli("submit", "--gpus", "1", "--for", "1h", "--", "true").stdout.strip()

    def ended() -> bool:
        return bool(json.loads(system.cli("show", job, "-o", "json").stdout)["status"] == "succeeded")

    eventually_sync(ended)
    end = datetime.fromisoformat(json.loads(system.cli("metrics", job, "--json").stdout)["end"])
    eventually_sync(lambda: datetime.now(UTC) > end + timedelta(seconds=2))
    late = system.cli("metrics", job, "--last", "1s")
    assert (late.returncode, late.stderr) == (0, "")
    assert "which is before the last 1s" in late.stdout
    assert re.search(rf"{job} had its GPUs until \w{{3}} \d{{1,2}} \w{{3}} 20\d\d \d\d:\d\d \w+, which", late.stdout)
    assert "Leave --last out" in late.stdout
    assert "no data" not in late.stdout
    assert system.cli("metrics", job).stdout.count("no data") == 1

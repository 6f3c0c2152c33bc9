"""The demo, as people start it: it checks itself what it shows, and ends with 0."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psycopg

from reservation_core.adapters.postgres.embedded.errors import EmbeddedPostgresError
from reservation_core.adapters.postgres.embedded.server import EmbeddedPostgres
from tests.e2e.systems.system_process import ROOT
from tests.e2e.test_idle_gpus import SHORTER
from tests.waiting import eventually_sync

LIMIT_S = 300
RECORDING = "at_s,gpu,utilisation\n" + "".join(f"0,{gpu},0.9\n12,{gpu},0\n60,{gpu},0\n" for gpu in range(4))


def environment(**settings: str) -> dict[str, str]:
    """The environment without our settings, but for these."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("GPU_DEV_")}
    return others | {"GPU_DEV_LOCAL_GPUS": "h100:4", **settings}


def test_the_demo_shows_the_gpus_from_the_workloads_own_output() -> None:
    command = [sys.executable, "-m", "standalone.demo"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False, timeout=LIMIT_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SIMULATED" in done.stdout
    assert "| CUDA_VISIBLE_DEVICES=0,1" in done.stdout
    assert "place 1 in the queue" in done.stdout
    assert "idle" not in done.stdout


def test_with_a_recording_the_demo_shows_a_session_released_as_idle(tmp_path: Path) -> None:
    recording = tmp_path / "use.csv"
    recording.write_text(RECORDING)
    with (tmp_path / "output").open("w") as output:
        demo = subprocess.Popen(
            [sys.executable, "-m", "standalone.demo"],
            cwd=ROOT,
            env=environment(GPU_DEV_LOCAL_USE=str(recording), TMPDIR=str(tmp_path)),
            stdout=output,
            stderr=output,
        )
    try:
        eventually_sync(lambda: demo.poll() is not None or shortened(tmp_path))
        status = demo.wait(LIMIT_S)
    finally:
        demo.terminate()
        demo.wait()
    shown = (tmp_path / "output").read_text()
    assert status == 0, shown
    for words in ("gpu-dev keep job-", "UTILISATION", "areas of graphs", "idle_warning, idle_released", "Your job"):
        assert words in shown, shown


def shortened(folder: Path) -> bool:
    """Shorten the demo's rule, which is minutes long, once it is there."""
    for home in folder.glob("gpu-dev-demo-*"):
        with suppress(EmbeddedPostgresError, psycopg.Error):
            with psycopg.connect(EmbeddedPostgres(home).libpq_url) as database:
                changed = database.execute(f"{SHORTER} WHERE idle_window IS NOT NULL").rowcount
            return changed > 0
    return False

"""Slurm's commands, installed as programs."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.gpu_dev.conftest import ROOT, System
from tests.waiting import PATIENCE_S

Slurm = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def slurm(system: System, tmp_path: Path) -> Slurm:
    """Runs one of Slurm's commands in the folder `work` of the test, off a terminal."""
    folder, programs = tmp_path / "work", tmp_path / "bin"
    folder.mkdir()
    installed = system.cli("slurm", "install", str(programs), PATH="/nowhere")
    assert installed.returncode == 0, installed.stderr

    def run(
        name: str, *words: str, who: str = "alice", stdin: str = "", **more: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [programs / name, *words],
            env={**system.environment(who), "PYTHONPATH": str(ROOT), **more},
            cwd=folder,
            input=stdin,
            text=True,
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
        )

    return run

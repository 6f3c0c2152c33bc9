"""Slurm's commands load no pydantic, as those of `gpu-dev` in everyday use."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.gpu_dev.examples import job_json
from tests.unit.gpu_dev.test_loaded_libraries import server

__all__ = ["server"]

_PROGRAM = "import sys; sys.modules['pydantic'] = None; from gpu_dev.slurm.__main__ import run_program; run_program()"


@pytest.mark.parametrize(
    "words",
    [
        "sbatch -G4 -t60 --parsable --wrap=true", "sbatch -G4 -t60 --test-only --wrap=true", "sbatch --help",
        "sbatch -G4 -t60 -J x --export=A=1 -D /data --nice=5 --wrap=true", "srun -G4 -t60 --test-only true",
        "squeue", "squeue --me", "squeue -j {job}", "scancel {job}", "scancel --me", "sinfo", "squeue --version",
    ],
)  # fmt: skip
def test_pydantic_is_not_needed(server: str, words: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", _PROGRAM, *words.format(job=json.loads(job_json())["id"]).split()]
    environment = {"GPU_DEV_SERVER": server, "GPU_DEV_TOKEN": "t", "HOME": str(tmp_path)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, input="")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout or words.startswith("scancel")
    assert "rror" not in ended.stderr

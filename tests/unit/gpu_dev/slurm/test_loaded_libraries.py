"""Slurm's commands load nothing heavy, as those of `gpu-dev` in everyday use."""

from pathlib import Path

import pytest

from tests.unit.gpu_dev.test_loaded_libraries import HEAVY, run_without, server

__all__ = ["server"]

_RUN = "from gpu_dev.slurm.__main__ import run_program; run_program()"


@pytest.mark.parametrize(
    "words",
    [
        "sbatch -G4 -t60 --parsable --wrap=true", "sbatch -G4 -t60 --test-only --wrap=true", "sbatch --help",
        "sbatch -G4 -t60 -J x --export=A=1 -D /data --nice=5 --wrap=true", "srun -G4 -t60 --test-only true",
        "squeue", "squeue --me", "squeue -j {job}", "scancel {job}", "scancel --me", "sinfo", "squeue --version",
    ],
)  # fmt: skip
def test_what_is_heavy_is_not_needed(server: str, words: str, tmp_path: Path) -> None:
    run_without(HEAVY, _RUN, server, words, tmp_path)

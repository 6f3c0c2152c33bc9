"""Slurm's commands as programs: they run, and leave Slurm's own alone."""

import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from gpu_dev.errors import UsageError
from gpu_dev.slurm.__main__ import PROGRAMS
from gpu_dev.slurm.installing import install, remove

ROOT = Path(__file__).parents[4]


def test_installed_commands_run_in_any_folder(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "it's here", tmp_path / "work"
    elsewhere.mkdir()
    (elsewhere / "typing.py").write_text("raise SystemExit('imported from the current folder')\n")
    install(folder, "", force=False)
    install(folder, str(folder), force=False)
    for name in PROGRAMS:
        ran = subprocess.run(
            [folder / name, "--version"],
            env={"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]},
            cwd=elsewhere,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.stdout.startswith("gpu-dev "), ran.stderr
    assert remove(folder) == [*PROGRAMS]
    assert remove(folder) == []
    assert list(folder.iterdir()) == []


def test_another_program_of_the_folder_stays(tmp_path: Path) -> None:
    other = tmp_path / "squeue"
    other.write_text("#!/bin/sh\n")
    with pytest.raises(UsageError, match=r"squeue is another program\."):
        install(tmp_path, "", force=True)
    assert remove(tmp_path) == []
    assert list(tmp_path.iterdir()) == [other]


def test_where_slurm_is_installed_it_has_to_be_wanted(tmp_path: Path) -> None:
    slurm, ours = tmp_path / "slurm", tmp_path / "ours"
    slurm.mkdir()
    shutil.copy("/bin/true", slurm / "sinfo")
    with pytest.raises(UsageError, match=r"Another program is named sinfo: .*/slurm/sinfo"):
        install(ours, str(slurm), force=False)
    assert not ours.exists()
    install(ours, str(slurm), force=True)
    assert sorted(path.name for path in ours.iterdir()) == sorted(PROGRAMS)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="can't be written"):
        install(tmp_path / "file" / "bin", "", force=False)


def test_no_installation_brings_the_commands_by_itself() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"].keys().isdisjoint(PROGRAMS)
    assert project["optional-dependencies"]["slurm"] == []

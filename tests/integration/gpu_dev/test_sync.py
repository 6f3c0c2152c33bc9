"""Folders that jobs get, and what they bring back, by the command line on the local cluster."""

import json
from pathlib import Path

import pytest

from tests.integration.gpu_dev.conftest import System

RUN = ("run", "-g1", "-d2m")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with everything that a folder may have."""
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / "train.py").write_text("import pathlib; print(pathlib.Path('src/größe.txt').read_text())")
    (folder / "src" / "größe.txt").write_text("42")
    (folder / "run.sh").write_text(
        "#!/bin/sh\nmkdir -p out/sub; cp src/größe.txt out/sub/; ln -s sub out/link; date > out/when\n"
    )
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("src/größe.txt")
    (folder / ".gitignore").write_text("*.log\nbuild/\n!keep.log\n")
    (folder / "x.log").write_text("left out")
    (folder / "keep.log").write_text("kept")
    (folder / "build").mkdir()
    (folder / "build" / "x").write_text("left out")
    return folder


def test_a_job_works_in_the_folder_that_was_sent(system: System, project: Path) -> None:
    ran = system.cli(*RUN, "--sync", str(project), "--", "sh", "-c", "python3 train.py; cat link; find . | sort; pwd")
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert (lines[0], lines[1][:2]) == ("42", "42")
    found = {line.removeprefix("42") for line in lines[1:-1]}
    assert found == {
        ".", "./.gitignore", "./empty", "./keep.log", "./link", "./run.sh", "./src", "./src/größe.txt", "./train.py",
    }  # fmt: skip
    assert "Sending" in ran.stderr


def test_what_a_job_made_comes_back(system: System, project: Path) -> None:
    ran = system.cli(*RUN, "--sync", str(project), "--fetch", "out/", "--", "./run.sh")
    assert ran.returncode == 0, ran.stderr
    assert (project / "out" / "sub" / "größe.txt").read_text() == "42"
    assert str((project / "out" / "link").readlink()) == "sub"
    [job] = json.loads(system.cli("list", "--all", "-o", "json").stdout)["items"]
    other = project.parent / "other"
    fetched = system.cli("fetch", job["id"], "--to", str(other))
    assert (fetched.returncode, (other / "out" / "when").exists()) == (0, True), fetched.stderr
    assert not (other / "train.py").exists()

"""The Dockerfiles build from what is there, on a base that can be named by digest, and run as nobody."""

import importlib.util
import json
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / "deploy" / "docker").glob("*.Dockerfile"))


def instructions(file: Path, word: str) -> list[str]:
    return re.findall(rf"^{word} (.+)$", file.read_text(), re.MULTILINE)


def test_there_is_one_for_each_program_of_the_cluster() -> None:
    assert [each.name.partition(".")[0] for each in FILES] == ["check", "scheduler", "webhook"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_what_is_copied_is_there(file: Path) -> None:
    for arguments in instructions(file, "COPY"):
        if "--from=" not in arguments:
            for source in arguments.split()[:-1]:
                assert (ROOT / source).exists(), f"{file.name} copies {source}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_what_the_package_is_made_of_is_copied(file: Path) -> None:
    if "pip install --no-cache-dir --no-deps --no-build-isolation ." not in file.read_text():
        return
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    copied = {source for arguments in instructions(file, "COPY") for source in arguments.split()[:-1]}
    for package in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        assert package in copied, f"{file.name} lacks {package}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_base_is_given_and_nobody_runs_it(file: Path) -> None:
    assert instructions(file, "ARG")[0].startswith("PYTHON=")
    assert {each.split()[0] for each in instructions(file, "FROM")} == {"${PYTHON}"}
    user = instructions(file, "USER")[-1].partition(":")[0]
    assert user.isdigit()
    assert int(user) > 0


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_program_exists_and_says_whether_it_is_well(file: Path) -> None:
    (entry,) = (json.loads(each) for each in instructions(file, "ENTRYPOINT"))
    assert entry[:2] == ["python", "-m"]
    assert importlib.util.find_spec(f"{entry[2]}.__main__") is not None
    checks = instructions(file, "HEALTHCHECK")
    if file.name == "check.Dockerfile":  # it listens nowhere
        assert checks == []
        return
    command = json.loads(checks[0].removeprefix("CMD "))
    compile(command[2], file.name, "exec")
    port = instructions(file, "EXPOSE")[0]
    assert f"127.0.0.1:{port}/health" in command[2]

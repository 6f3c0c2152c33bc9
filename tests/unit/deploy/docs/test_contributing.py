"""CONTRIBUTING.md names files, folders and targets that exist; hooks run what they name; subjects have one form."""

import re
from pathlib import Path

import pytest
import yaml

from tools.subject import fault

ROOT = Path(__file__).parents[4]
GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
TARGETS = {*re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)}


def test_paths_in_the_guide_exist() -> None:
    named = re.findall(r"`((?:[\w.-]+/)+[\w.-]*|[\w-]+\.(?:md|toml|lock))`", GUIDE)
    assert len(named) > 20
    for path in named:
        assert (ROOT / path).exists(), path


def test_targets_in_the_guide_exist() -> None:
    named = {*re.findall(r"\bmake ([a-z]+)", GUIDE)}
    assert {"test", "check", "reference"} <= named <= TARGETS


def test_hooks_fetch_nothing_and_call_what_there_is() -> None:
    told = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert [repository["repo"] for repository in told["repos"]] == ["local"]
    (hooks,) = [repository["hooks"] for repository in told["repos"]]
    assert {hook["language"] for hook in hooks} == {"system"}
    assert [hook["entry"].split()[-1] for hook in hooks] == ["lint", "tools.subject"]
    assert "lint" in TARGETS


@pytest.mark.parametrize(
    ("subject", "wrong"),
    [
        ("planner: retry when the database is read-only", None),
        ("api!: refuse tokens without an end", None),
        ("Merge branch 'main'", None),
        ("Planner: retry", "area"),
        ("planner:", "area"),
        ("Retry when the database is read-only", "area"),
        ("planner: " + "x" * 64, "73 characters"),
        ("", "area"),
    ],
)
def test_a_subject_names_its_area_and_is_short(subject: str, wrong: str | None) -> None:
    found = fault(subject)
    assert found is None if wrong is None else found is not None and wrong in found

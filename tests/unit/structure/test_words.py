"""Faults that `tools.words` finds, and texts that it leaves alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools import words

GIT = ["git", "-c", "user.name=a", "-c", "user.email=a@lab.example", "-c", "commit.gpgsign=false"]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("Who waits is told.", [1]),
        ("A job.\nWhoever waits is told.\n\n- Whom it concerns\n", [2, 4]),
        ("# Whose pods are whose\n| What is over | a |", [1, 2]),
        ("The planner decides who starts. It knows what is free.", []),
        ("Say `Who waits`, or \"What is over\".\n\n```\nWho  GPUs\n```\nWHO's list, Whole nodes; What's more", []),
    ],
)
def test_sentences_begin_with_a_thing(text: str, lines: list[int]) -> None:
    assert [line for line, _ in words.wrong_openings(text)] == lines


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ('"""A module."""\n\ndef f():\n    """Do it.\n\n    Who waits?\n    """\n', [6]),
        ("x = 1  # Whoever asks\n# Who asks\n", [1, 2]),
        ('X = 1\n"""Who asks."""\n', [2]),
        ('x = "Who asks is a text that users see."\n', []),
        ("for each in jobs:\n    pass\n", [1]),
        ("async def f():\n    async for a, each in jobs:\n        yield a\n", [2]),
        ("x = [1 for job in jobs\n     for (_, (each, _)) in job]\n", [2]),
        ("each = 1\nx = {job: each for job in jobs}\n", []),
    ],
)
def test_comments_docstrings_and_loop_variables_are_read(source: str, lines: list[int]) -> None:
    assert sorted(line for line, _ in words.wrong_in_code(source)) == lines


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for arguments in (
        ["init", "-q", "-b", "main"],
        *(["commit", "-q", "--allow-empty", "-m", text] for text in ("a", "b: c")),
    ):
        subprocess.run([*GIT, *arguments], cwd=tmp_path, check=True, env=clean_environment())
    return tmp_path


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}


def test_only_new_commits_are_looked_at_and_no_merges(repository: Path) -> None:
    assert [*words.wrong_in_commits(repository, "HEAD~1..HEAD")] == []
    for arguments in (["checkout", "-q", "-b", "side"], ["commit", "-q", "--allow-empty", "-m", "A change"]):
        subprocess.run([*GIT, *arguments], cwd=repository, check=True, env=clean_environment())
    subprocess.run([*GIT, "checkout", "-q", "main"], cwd=repository, check=True, env=clean_environment())
    subprocess.run([*GIT, "merge", "-q", "--no-ff", "side"], cwd=repository, check=True, env=clean_environment())
    [wrong] = words.wrong_in_commits(repository, "HEAD~1..HEAD")
    assert wrong.endswith("A change")


@pytest.mark.parametrize("commits", ["", "..", f"{'0' * 40}..HEAD", "absent..HEAD", "HEAD..", "--all"])
def test_a_range_that_is_not_here_is_not_checked(repository: Path, commits: str) -> None:
    assert [*words.wrong_in_commits(repository, commits)] == []


def test_without_history_nothing_fails(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("for each in ():\n    pass\n")
    assert [*words.wrong_in_commits(tmp_path, "a..b")] == []
    assert [line.partition(": ")[0] for line in words.wrong_in_files(tmp_path)] == ["a.py:1"]


def test_faults_are_printed_and_end_with_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(words, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["words"])
    assert words.main() == 0
    (tmp_path / "README.md").write_text("Who asks\n")
    assert words.main() == 1
    assert capsys.readouterr().out.startswith("README.md:1: a sentence begins with Who")

"""The threat model: each promise names tests that there are, and what is not promised says whom it concerns."""

import re

import pytest

from tests.mutants.mutant import ROOT

_PAGE = (ROOT / "docs/explanation/threat-model.md").read_text(encoding="utf-8")
_ROW = re.compile(r"^\| (?!promise \||\| whom)(.+) \|$", re.MULTILINE)


def _rows(heading: str) -> list[list[str]]:
    section = _PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return [row.split(" | ") for row in _ROW.findall(section)]


@pytest.mark.parametrize("row", _rows("Promises"), ids=lambda row: row[0][:60])
def test_each_promise_names_tests_that_there_are(row: list[str]) -> None:
    _promise, _how, tests = row
    named = re.findall(r"`([^`]+)`", tests)
    assert named
    for name in named:
        assert any(ROOT.glob(name if name.startswith("tests/") else f"tests/**/{name}")), name


@pytest.mark.parametrize("row", _rows("Not promised"), ids=lambda row: row[0][:60])
def test_what_is_not_promised_says_whom_it_concerns(row: list[str]) -> None:
    _what, whom = row
    assert whom.strip()


def test_both_lists_are_read() -> None:
    assert len(_rows("Promises")) >= 20
    assert len(_rows("Not promised")) >= 10

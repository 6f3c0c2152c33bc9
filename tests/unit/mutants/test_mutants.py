"""The list of mutants: each still applies, is a program, names tests that there are, and stands on the page."""

import ast
import re
from pathlib import Path

import pytest

from tests.mutants import __main__ as runner
from tests.mutants.__main__ import Fate, tried
from tests.mutants.mutant import ROOT, Mutant
from tests.mutants.mutants import MUTANTS
from tests.mutants.table import PAGE, table

_FUNCTION = re.compile(r"CREATE (?:OR REPLACE )?FUNCTION (\w+)\(.*?\$\$;", re.DOTALL)
_RENAMED = re.compile(r"ALTER FUNCTION (\w+)\([^)]*\) RENAME TO (\w+);")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_applies_and_its_tests_are_there(mutant: Mutant) -> None:
    text = mutant.applied((ROOT / mutant.file).read_text(encoding="utf-8"))
    if mutant.file.endswith(".py"):
        ast.parse(text)
    assert mutant.tests
    for test in mutant.tests:
        file, _, name = test.partition("::")
        said = (ROOT / file).read_text(encoding="utf-8")
        assert not name or re.search(rf"^(async )?def {name}\b", said, re.MULTILINE), test


@pytest.mark.parametrize(
    "mutant",
    [listed_mutant for listed_mutant in MUTANTS if listed_mutant.file.endswith(".sql")],
    ids=lambda each: each.name,
)
def test_no_later_migration_replaces_the_function_that_is_broken(mutant: Mutant) -> None:
    file = ROOT / mutant.file
    text = file.read_text(encoding="utf-8")
    place = text.index(mutant.old)
    broken = {found[1] for found in _FUNCTION.finditer(text) if found.start() <= place < found.end()}
    for later in sorted(path for path in file.parent.glob("0*.sql") if path.name > file.name):
        said = later.read_text(encoding="utf-8")
        renamed = {found[1]: found[2] for found in _RENAMED.finditer(said)}
        broken = {renamed.get(name, name) for name in broken}
        replaced = {found[1] for found in _FUNCTION.finditer(said)}
        assert not broken & replaced, f"{later.name} defines it anew: break it there"


def test_names_and_breaks_are_unique() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 60
    assert len({(mutant.file, mutant.old, mutant.new) for mutant in MUTANTS}) == len(MUTANTS)


def test_the_page_is_current() -> None:
    assert (ROOT / PAGE).read_text(encoding="utf-8") == table(MUTANTS), f"python -m tests.mutants --table > {PAGE}"


@pytest.mark.parametrize(
    ("new", "tests", "fate"),
    [
        ("return 2", ("test_it.py",), Fate.KILLED),
        ("return 1 + 0", ("test_it.py",), Fate.SURVIVED),
        ("while True: pass", ("test_it.py",), Fate.HUNG),
        ("return 2", ("test_nothing.py",), Fate.NOT_RUN),
        ("return 2", ("test_it.py::test_another",), Fate.NOT_RUN),
    ],
)
def test_what_becomes_of_a_mutant(
    tmp_path: Path, new: str, tests: tuple[str, ...], fate: Fate, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "it.py").write_text("def one():\n    return 1\n")
    (tmp_path / "test_it.py").write_text("from it import one\n\ndef test_one():\n    assert one() == 1\n")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    mutant = Mutant("m", "One is one", "it.py", "return 1", new, tests)
    bound_s = 3 if fate is Fate.HUNG else 120
    assert tried(mutant, tmp_path, bound_s).fate is fate
    # The tree is as it was.
    assert (tmp_path / "it.py").read_text().endswith("return 1\n")
    assert tried(Mutant("m", "", "it.py", "return 3", "", tests), tmp_path, 1).fate is Fate.NOT_APPLICABLE


def test_one_that_survives_ends_the_run_with_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for fate, code in ((Fate.KILLED, 0), (Fate.HUNG, 0), (Fate.SURVIVED, 1), (Fate.NOT_RUN, 1)):
        verdict = runner.Verdict(MUTANTS[0], fate, 1.0, "said")
        monkeypatch.setattr(runner, "run", lambda *_args, verdict=verdict, **_more: [verdict])
        monkeypatch.setattr("sys.argv", ["mutants"])
        assert runner.main() == code
    assert "0 of 1 mutants are killed." in capsys.readouterr().out

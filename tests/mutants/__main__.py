"""Break each guard once and see its tests go red: `python -m tests.mutants [NAME …]`, or `make mutants`.

Each mutant is tried in a copy of the tree, which is mended afterwards; two copies at a time. The tests must pass
without any mutant first: a test that is red anyway kills nothing. A mutant whose tests hang beyond the bound is killed,
too. Ends with 1 when a mutant survives, no longer applies, or its tests could not be run. `--table` prints the
reference page.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.mutant import ROOT, Mutant
from tests.mutants.mutants import MUTANTS
from tests.mutants.table import table

LEFT_OUT = shutil.ignore_patterns(
    ".git",
    ".venv",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    ".hypothesis",
    ".gpu-dev",
    "__pycache__",
    "node_modules",
)
FAILED = 1
"""What pytest ends with when tests ran and some failed; a mistake in what to run ends with something else."""


class Fate(StrEnum):
    """What became of a mutant."""

    KILLED = "killed"
    HUNG = "killed (tests hung)"
    SURVIVED = "SURVIVED"
    NOT_RUN = "TESTS DID NOT RUN"
    NOT_APPLICABLE = "DOES NOT APPLY"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One mutant's fate, how long it took (seconds), and the end of what the tests said."""

    mutant: Mutant
    fate: Fate
    seconds: float
    said: str

    @property
    def good(self) -> bool:
        """Whether the guard is held by its tests."""
        return self.fate in (Fate.KILLED, Fate.HUNG)


def tests_in(tree: Path, tests: Sequence[str], bound_s: float) -> tuple[int | None, str]:
    """How the tests ended in a tree (None: not within the bound), and the end of what they said."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(
        command, cwd=tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    ) as process:
        try:
            said, _ = process.communicate(timeout=bound_s)
            return process.returncode, _end(said)
        except subprocess.TimeoutExpired:
            # Their servers end with the watchers of their own groups; what is left in this group ends here.
            os.killpg(process.pid, signal.SIGKILL)
            said, _ = process.communicate()
            return None, _end(said)


def _end(said: bytes) -> str:
    return "\n".join(said.decode(errors="replace").splitlines()[-12:])


def tried(mutant: Mutant, tree: Path, bound_s: float) -> Verdict:
    """Put a mutant into a tree, run its tests, and mend the tree."""
    began = time.monotonic()
    path = tree / mutant.file
    before = path.read_text(encoding="utf-8")
    try:
        path.write_text(mutant.applied(before), encoding="utf-8")
    except ValueError as error:
        return Verdict(mutant, Fate.NOT_APPLICABLE, 0.0, str(error))
    try:
        code, said = tests_in(tree, mutant.tests, bound_s)
    finally:
        path.write_text(before, encoding="utf-8")
    fate = {None: Fate.HUNG, 0: Fate.SURVIVED, FAILED: Fate.KILLED}.get(code, Fate.NOT_RUN)
    return Verdict(mutant, fate, time.monotonic() - began, said)


def run(mutants: Sequence[Mutant], parallel: int, bound_s: float, *, baseline: bool) -> list[Verdict]:
    """Try all of them, one at a time in each copy of the tree. Raises RuntimeError when their tests are red anyway."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        trees: SimpleQueue[Path] = SimpleQueue()
        for number in range(parallel):
            tree = Path(folder) / str(number)
            shutil.copytree(ROOT, tree, ignore=LEFT_OUT, symlinks=True)
            trees.put(tree)
        if baseline:
            tree = trees.get()
            every = sorted({test for mutant in mutants for test in mutant.tests})
            code, said = tests_in(tree, every, bound_s * max(4, len(every) / 4))
            trees.put(tree)
            if code != 0:
                raise RuntimeError(f"the tests are red without any mutant:\n{said}")

        def one(mutant: Mutant) -> Verdict:
            tree = trees.get()
            try:
                verdict = tried(mutant, tree, bound_s)
            finally:
                trees.put(tree)
            print(f"{verdict.fate:20} {verdict.seconds:6.1f} s  {mutant.name}", flush=True)
            return verdict

        with ThreadPoolExecutor(parallel) as pool:
            return list(pool.map(one, mutants))


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="only mutants whose names contain one of these words")
    parser.add_argument("--table", action="store_true", help="print docs/reference/mutants.md and end")
    parser.add_argument("--parallel", type=int, default=2, help="how many at a time (2)")
    parser.add_argument("--bound-s", type=float, default=300, help="how long one mutant's tests may take (300 s)")
    parser.add_argument("--no-baseline", action="store_true", help="take it that the tests pass without mutants")
    given = parser.parse_args()
    if given.table:
        print(table(MUTANTS), end="")
        return 0
    mutants = [mutant for mutant in MUTANTS if not given.names or any(word in mutant.name for word in given.names)]
    try:
        verdicts = run(mutants, given.parallel, given.bound_s, baseline=not given.no_baseline)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    bad = [verdict for verdict in verdicts if not verdict.good]
    for verdict in bad:
        print(f"\n{verdict.fate}: {verdict.mutant.name} ({verdict.mutant.file})\n{verdict.said}")
    print(f"\n{len(verdicts) - len(bad)} of {len(verdicts)} mutants are killed.")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

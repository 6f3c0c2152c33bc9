"""The reference page of all mutants."""

from collections.abc import Sequence

from tests.mutants.mutant import Mutant

PAGE = "docs/reference/mutants.md"
_HEAD = """# Mutants

Each guard of the server is broken once, on purpose, and tests must go red: `make mutants` (forty minutes on two cores;
CI runs it weekly). This page is generated: `python -m tests.mutants --table > docs/reference/mutants.md`. The breaks
are in `tests/mutants/`; a new guard gets one there. `make mutants ARGS="extend"` tries those with this word in their
names.

| guard | broken as | in | tests that go red |
|---|---|---|---|
"""


def table(mutants: Sequence[Mutant]) -> str:
    """The page as Markdown."""
    return _HEAD + "".join(
        f"| {mutant.guard} | `{mutant.name}` | `{mutant.file}` | {', '.join(map(_test, mutant.tests))} |\n"
        for mutant in mutants
    )


def _test(test: str) -> str:
    file, _, name = test.partition("::")
    module = file.rsplit("/", 1)[-1].removesuffix(".py")
    return f"`{module}`" + (f" {name.removeprefix('test_').replace('_', ' ')}" if name else "")

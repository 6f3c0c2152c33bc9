"""No folder has more modules, and no module more lines, than somebody can take in at one look."""

import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[3]
MOST = 15
LONGEST = 400
"""Lines of a module."""


def crowded(root: Path, packages: list[str]) -> dict[str, int]:
    """The folders with more than `MOST` modules, an `__init__` not counted."""
    found = Counter(
        file.parent.relative_to(root).as_posix()
        for package in packages
        for file in (root / package).rglob("*.py")
        if file.name != "__init__.py"
    )
    return {folder: modules for folder, modules in found.items() if modules > MOST}


def test_no_folder_has_more_modules_than_can_be_seen_at_once() -> None:
    built = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert crowded(ROOT, [*built["packages"], "tests", "benchmarks", "tools"]) == {}


def test_no_module_is_longer_than_is_read_at_once() -> None:
    built = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    modules = [
        file
        for folder in (*built["packages"], "tests", "benchmarks", "tools")
        for file in (ROOT / folder).rglob("*.py")
    ]
    assert len(modules) > 1000
    assert [str(file) for file in modules if file.read_bytes().count(b"\n") > LONGEST] == []


def test_a_revision_is_in_the_folder_of_its_ten() -> None:
    """`005x` has 0050 to 0059: the number says where the next one goes."""
    versions = ROOT / "migrations/versions"
    files = [path.relative_to(versions) for path in versions.rglob("[0-9]*.*") if path.suffix in {".py", ".sql"}]
    assert len(files) > 50
    assert [str(file) for file in files if file.parent.as_posix() != f"{file.name[:3]}x"] == []


def test_a_folder_that_has_more_is_found(tmp_path: Path) -> None:
    for folder, modules in (("a", MOST + 1), ("a/b", MOST)):
        (tmp_path / folder).mkdir()
        for number in range(modules):
            (tmp_path / folder / f"m{number}.py").touch()
        (tmp_path / folder / "__init__.py").touch()
    assert crowded(tmp_path, ["a"]) == {"a": MOST + 1}

"""Guides, values and notes for installing: files and targets that they name exist."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
GUIDES = ROOT / "docs" / "guides"
TEXTS = sorted(
    [
        ROOT / "README.md",
        *(ROOT / "docs" / "tutorial").glob("*.md"),
        *(GUIDES / f"{name}.md" for name in ("install-aws", "install-gcp", "operating", "images", "gitops")),
        *ROOT.glob("charts/*/values*.yaml"),
        *ROOT.glob("charts/*/templates/NOTES.txt"),
    ]
)
_OURS = re.compile(r"(?<![\w/.~])(?:charts|deploy|docs|tests)/[\w./-]*\w")


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_that_are_named_are_there(path: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    ).stdout.split()  # fmt: skip
    if not listed:
        pytest.skip("not a git checkout")
    for named in _OURS.findall(path.read_text()):
        assert any(part == named or part.startswith((f"{named}/", f"{named}.")) for part in listed), named


def test_make_targets_are_there() -> None:
    targets = {*re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)}
    for path in TEXTS:
        assert {*re.findall(r"\bmake ([a-z]+)(?=[`\s])", "\n".join(code(path.read_text())))} <= targets, path


def code(text: str) -> Iterator[str]:
    """What stands in blocks to be typed."""
    yield from re.findall(r"^```(?:console.*)?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)

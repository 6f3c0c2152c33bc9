"""Check how the repository reads, as far as a machine can: `python -m tools.words`, part of `make lint`.

Sentences of docstrings, comments and pages must not begin with a relative clause, and loop variables are named after
their element. The commits of the range in COMMITS (`base..head`, set in CI) have subjects as `tools.subject` wants
them; a range that this clone does not hold is not checked.
"""

import ast
import io
import os
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tools.subject import fault

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "SECURITY.md", "CONTRIBUTING.md", "docs/**/*.md", "tests/**/*.md")
# English writes these with a capital only where a sentence begins.
_OPENING = re.compile(r"\b(Who|Whom|Whoever|Whose|What is)\b(?!')")
_CODE = re.compile(r"^```.*?^ *```|``.+?``|`[^`\n]*(?:\n[^`\n]+)?`|\"[^\"\n]*\"", re.DOTALL | re.MULTILINE)
_HAS_TARGET = ast.For | ast.AsyncFor | ast.comprehension


def wrong_openings(text: str, line: int = 1) -> Iterator[tuple[int, str]]:
    """The line and the word of sentences that begin with a relative clause; code and quotations don't count."""
    prose = _CODE.sub(lambda code: re.sub(r"[^\n]", ".", code[0]), text)
    for opening in _OPENING.finditer(prose):
        yield line + prose.count("\n", 0, opening.start()), f"a sentence begins with {opening[1]}: name the thing first"


def wrong_in_code(source: str) -> Iterator[tuple[int, str]]:
    """Faults of Python source, by line."""
    if not (_OPENING.search(source) or re.search(r"\beach\b", source)):
        return  # most modules: reading them takes longer than searching them
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield from wrong_openings(token.string, token.start[0])
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from wrong_openings(node.value.value, node.lineno)
        if isinstance(node, _HAS_TARGET):
            for name in ast.walk(node.target):
                if isinstance(name, ast.Name) and name.id == "each":
                    yield name.lineno, "a loop variable is called `each`: name it after its element"


def wrong_in_files(root: Path) -> Iterator[str]:
    """Lines `file:line: what is wrong`, of each Python file that git knows and each page."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=root, capture_output=True, text=True, check=False,
    )  # fmt: skip
    modules = [root / name for name in listed.stdout.split("\0") if name]
    if listed.returncode:  # an archive without history
        modules = [path for path in root.rglob("*.py") if not path.relative_to(root).parts[0].startswith(".")]
    pages = [path for pattern in PAGES for path in root.glob(pattern)]
    for path in sorted({*modules, *pages}):
        if path.exists():
            text = path.read_text(encoding="utf-8")
            for line, wrong in wrong_in_code(text) if path.suffix == ".py" else wrong_openings(text):
                yield f"{path.relative_to(root)}:{line}: {wrong}"


def wrong_in_commits(root: Path, commits: str) -> Iterator[str]:
    """Lines about the commits of a range but for merges; none where the range is empty or can't be read."""
    if not commits:
        return
    log = subprocess.run(
        ["git", "log", "--no-merges", "--format=%h %s", "--end-of-options", commits, "--"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    if log.returncode:
        print(f"commit subjects are not checked: this clone does not hold {commits}", file=sys.stderr)
    for commit, _, subject in (line.partition(" ") for line in log.stdout.splitlines()):
        if wrong := fault(subject):
            yield f"commit {commit}: {wrong}: {subject}"


def main() -> int:
    wrong = [*wrong_in_files(ROOT), *wrong_in_commits(ROOT, os.environ.get("COMMITS", ""))]
    print("".join(f"{line}\n" for line in wrong), end="")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())

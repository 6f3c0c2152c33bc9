"""Prepare a release: the version wherever it is repeated, a section of the changelog, and the tag's message.

`python -m tools.release 0.3.0` changes files and writes dist/tag-message.txt. It commits, tags and pushes nothing.
`pyproject.toml` is where the version comes from; a test holds what repeats it to that.
"""

import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import gmtime, strftime

ROOT = Path(__file__).parents[1]
CHANGELOG = "CHANGELOG.md"
TAG_MESSAGE = "dist/tag-message.txt"
_VERSION = re.compile(r"\d+\.\d+\.\d+")
SUBJECT = re.compile(r"(?P<area>[a-z][\w -]*)(?P<breaking>!)?: (?P<summary>.+)")
# What changes nothing for users or operators.
_INTERNAL = {"bench", "benchmarks", "build", "ci", "docs", "names", "test", "tests"}
_BREAKING = "BREAKING CHANGE: "


class ReleaseError(Exception):
    """The release cannot be prepared; the text says what to change."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit: its full hash, subject and body."""

    id: str
    subject: str
    body: str


def repeated(root: Path) -> list[Path]:
    """The files that repeat the version. `make manifests` makes the plain manifests from the charts."""
    guides = [root / "docs" / "guides" / f"{name}.md" for name in ("images", "install-aws")]
    return [
        root / "pyproject.toml",
        root / "deploy" / "node-agent.yaml",
        *guides,
        root / "docs" / "tutorial" / "first-ten-minutes-cluster.md",
        *sorted(root.glob("charts/*/Chart.yaml")),
    ]


def with_version(text: str, old: str, new: str) -> str:
    """The text with the new version; bounds of other packages stay."""
    return re.sub(rf"(?<![\d.])(?<![<>~=!]=){re.escape(old)}(?![\d.]*\d)", new, text)


def section(version: str, day: str, commits: Sequence[Commit]) -> str:
    """The changelog's section of a version from its commits, newest first, ordered by area."""
    changes: list[tuple[str, str]] = []
    breaking: list[tuple[str, str]] = []
    for commit in reversed(commits):
        subject = SUBJECT.fullmatch(commit.subject)
        if subject is None:
            continue
        area, summary = subject["area"], subject["summary"]
        notes = [line.removeprefix(_BREAKING) for line in commit.body.splitlines() if line.startswith(_BREAKING)]
        entry = f"- **{area}:** {summary} ({commit.id[:7]})"
        if subject["breaking"] or notes:
            breaking.append((area, "\n".join([entry, *(f"  {note}" for note in notes)])))
        elif area not in _INTERNAL:
            changes.append((area, entry))
    parts = [f"## {version} ({day})\n"]
    for title, entries in (("Breaking changes", breaking), ("Changes", changes)):
        if entries:
            lines = [entry for _area, entry in sorted(entries, key=lambda entry: entry[0])]
            parts.append(f"### {title}\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def with_section(changelog: str, added: str) -> str:
    """The changelog with a section before the older ones. Raises ReleaseError if it has that version."""
    version = added.split()[1]
    if re.search(rf"^## {re.escape(version)} ", changelog, re.MULTILINE):
        raise ReleaseError(f"{CHANGELOG} already has a section for {version}. Remove it to prepare the release again.")
    head, mark, older = changelog.partition("\n## ")
    return f"{head}\n{added}" + (f"{mark}{older}" if mark else "")


def tag_message(changelog: str, version: str) -> str:
    """The message of the annotated tag: the version, then its section of the changelog."""
    found = re.search(rf"^## {re.escape(version)} .*?\n\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ReleaseError(f"{CHANGELOG} has no section for {version}.")
    return f"gpu-dev-server {version}\n\n{found[1].strip()}\n"


def commits_since(root: Path, tag: str) -> list[Commit]:
    """Commits after a tag, newest first; all commits if that tag does not exist. Merges are left out."""
    known = _git(root, "tag", "--list", tag).strip()
    log = _git(root, "log", "--no-merges", "--format=%H%x1f%s%x1f%b%x1e", f"{known}..HEAD" if known else "HEAD")
    return [Commit(*entry.strip("\n").split("\x1f")) for entry in log.split("\x1e") if entry.strip()]


def prepare(root: Path, version: str, day: str) -> None:
    """Change the files of the next version. Raises ReleaseError."""
    old = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    if not _VERSION.fullmatch(version) or _parts(version) <= _parts(old):
        raise ReleaseError(
            f"VERSION must be three numbers and higher than {old}, for example: make release VERSION=1.0.0"
        )
    commits = commits_since(root, f"v{old}")
    changelog = with_section((root / CHANGELOG).read_text(encoding="utf-8"), section(version, day, commits))
    for path in repeated(root):
        text = path.read_text(encoding="utf-8")
        path.write_text(with_version(text, old, version), encoding="utf-8")
    (root / CHANGELOG).write_text(changelog, encoding="utf-8")
    message = root / TAG_MESSAGE
    message.parent.mkdir(exist_ok=True)
    message.write_text(tag_message(changelog, version), encoding="utf-8")


def _parts(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True).stdout


def main() -> None:
    """Prepare the version named on the command line, and print the commands that publish it."""
    version = sys.argv[1] if len(sys.argv) > 1 else ""
    try:
        prepare(ROOT, version, strftime("%Y-%m-%d", gmtime()))
    except ReleaseError as error:
        sys.exit(f"error: {error}")
    sys.stdout.write(
        f"Prepared {version}. Review {CHANGELOG} and the diff, then:\n"
        f"  git commit -am 'build: release {version}'\n"
        f"  git tag -a v{version} -F {TAG_MESSAGE} --cleanup=verbatim\n"
        f"  git push origin main v{version}\n"
    )


if __name__ == "__main__":
    main()

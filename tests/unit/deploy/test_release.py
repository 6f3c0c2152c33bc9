"""The version stands in pyproject.toml; what repeats it says the same, and the release script prepares the next one."""

import importlib.metadata
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from gpu_dev.main import app
from tools.release import Commit, ReleaseError, prepare, repeated, section, tag_message, with_section, with_version

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
VERSION = PROJECT["project"]["version"]


@pytest.mark.parametrize("chart", sorted(ROOT.glob("charts/**/Chart.yaml")), ids=lambda path: path.parent.name)
def test_charts_carry_the_projects_version(chart: Path) -> None:
    read = yaml.safe_load(chart.read_text())
    said = [read["version"], *(dependency["version"] for dependency in read.get("dependencies", ()))]
    said += [read["appVersion"]] if read["type"] == "application" else []
    assert {*said} == {VERSION}


def test_the_release_script_changes_every_file_that_repeats_the_version() -> None:
    """Guides and manifests name images by it; manifests that are made from charts follow by `make manifests`."""
    stated = {path for path in repeated(ROOT) if VERSION in path.read_text()}
    assert stated == {*repeated(ROOT)}
    assert ROOT / "charts/gpu-dev-server/Chart.yaml" in stated
    # Only the line that says the version changes, not other packages' versions.
    before = 'version = "1.2.3"\nneeds = ["a>=1.2.3"]\n'
    assert with_version(before, "1.2.3", "1.3.0") == 'version = "1.3.0"\nneeds = ["a>=1.2.3"]\n'
    assert with_version("image: a:1.2.3\nother: 11.2.30\n", "1.2.3", "2.0.0") == "image: a:2.0.0\nother: 11.2.30\n"


def test_the_command_line_prints_the_installed_version() -> None:
    ran = CliRunner().invoke(app, ["--version"])
    assert (ran.exit_code, ran.stdout) == (0, f"gpu-dev {importlib.metadata.version('gpu-dev-server')}\n")


@pytest.mark.parametrize("package", PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
def test_every_package_says_that_it_is_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()


def test_the_newest_section_of_the_changelog_is_this_version() -> None:
    found = re.search(r"^## (\S+) \((\d{4}-\d{2}-\d{2})\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert found is not None
    assert found[1] == VERSION


COMMITS = [
    Commit("a" * 40, "planner: retry when the database is read-only", ""),
    Commit("b" * 40, "api!: refuse tokens without an end", "BREAKING CHANGE: create them with --expires-in"),
    Commit("c" * 40, "test: wait for the lease", ""),
    Commit("d" * 40, "A claim that is dropped counts no more", ""),
    Commit("e" * 40, "planner: plan gangs first", ""),
]


def test_a_section_is_made_from_the_commits_that_name_an_area() -> None:
    assert section("0.3.0", "2026-12-01", COMMITS) == (
        "## 0.3.0 (2026-12-01)\n"
        "\n"
        "### Breaking changes\n"
        "\n"
        "- **api:** refuse tokens without an end (bbbbbbb)\n"
        "  create them with --expires-in\n"
        "\n"
        "### Changes\n"
        "\n"
        "- **planner:** plan gangs first (eeeeeee)\n"
        "- **planner:** retry when the database is read-only (aaaaaaa)\n"
    )


def test_a_section_goes_before_the_older_ones_and_only_once() -> None:
    written = with_section(
        "# Changelog\n\nAbout.\n\n## 0.2.0 (2026-11-25)\n\nOld.\n", "## 0.3.0 (2026-12-01)\n\nNew.\n"
    )
    assert written == "# Changelog\n\nAbout.\n\n## 0.3.0 (2026-12-01)\n\nNew.\n\n## 0.2.0 (2026-11-25)\n\nOld.\n"
    with pytest.raises(ReleaseError, match=r"0\.3\.0"):
        with_section(written, "## 0.3.0 (2026-12-02)\n\nAgain.\n")
    assert tag_message(written, "0.3.0") == "gpu-dev-server 0.3.0\n\nNew.\n"


def test_a_release_is_prepared_and_nothing_is_committed(tmp_path: Path) -> None:
    for path in repeated(ROOT):
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(path.read_text())
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n")

    def git(*arguments: str) -> str:
        who = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        return subprocess.run(
            ["git", *who, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout

    git("init", "--quiet")
    git("commit", "--quiet", "--allow-empty", "-m", "planner: start")
    git("tag", f"v{VERSION}")
    git("add", ".")
    git("commit", "--quiet", "-m", "planner: plan gangs first")
    prepare(tmp_path, "9.0.0", "2026-12-01")
    # The prepared version is the one after the newest tag.
    assert "start" not in (tmp_path / "CHANGELOG.md").read_text()
    assert "**planner:** plan gangs first" in (tmp_path / "dist/tag-message.txt").read_text()
    assert all("9.0.0" in path.read_text() for path in repeated(tmp_path))
    assert git("log", "--format=%s").splitlines() == ["planner: plan gangs first", "planner: start"]
    with pytest.raises(ReleaseError, match=r"higher than 9\.0\.0"):
        prepare(tmp_path, "8.0.0", "2026-12-01")

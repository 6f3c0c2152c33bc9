"""The pipelines of GitHub and GitLab: what they run is there, and nothing is published untested or unsigned."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.read_yaml import read_yaml

ROOT = Path(__file__).parents[3]
WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"
WEEKLY = WORKFLOW.with_name("mutants.yml")
PUSH, SIGN = ROOT / "deploy" / "images" / "push.sh", ROOT / "deploy" / "images" / "sign.sh"
GIVEN = {"REGISTRY": "registry.test:5000/team/", "TAG": "1.2.3", "BASE_IMAGE": f"python@sha256:{'0' * 64}"}
GIVEN |= {"NODE_IMAGE": f"node@sha256:{'1' * 64}"}
DIGESTS = {"api-service": f"sha256:{'a' * 64}", "gpu-scheduler": f"sha256:{'b' * 64}"}


def github() -> dict[str, Any]:
    found = read_yaml(WORKFLOW.read_text())
    assert isinstance(found, dict)
    return found


def gitlab() -> dict[str, Any]:
    found = read_yaml((ROOT / ".gitlab-ci.yml").read_text())
    assert isinstance(found, dict)
    return found


def gitlab_jobs() -> dict[str, dict[str, Any]]:
    """Those of every commit; those of WEEKLY have a schedule of their own."""
    jobs = {name: job for name, job in gitlab().items() if isinstance(job, dict) and "script" in job}
    return {name: job for name, job in jobs.items() if name not in ("mutants", "explore")}


def commands(job: dict[str, Any]) -> list[str]:
    """What a job runs, of either."""
    return [*job.get("script", ()), *(step["run"] for step in job.get("steps", ()) if "run" in step)]


def make_targets() -> set[str]:
    return {*re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)}


@pytest.mark.parametrize("jobs", [github()["jobs"], gitlab_jobs()], ids=["github", "gitlab"])
def test_both_call_the_one_definition_build_push_and_sign(jobs: dict[str, dict[str, Any]]) -> None:
    assert [*jobs] == ["lint", "test", "postgres", "coverage", "build", "publish"]
    told = {name: "\n".join(commands(job)) for name, job in jobs.items()}
    made = {name: re.findall(r"\bmake ([a-z]+)|\.ci/run ([a-z]+)", text) for name, text in told.items()}
    assert made == {
        "lint": [("", "check")],
        "test": [("", "test")],
        "postgres": [("", "test")],
        "coverage": [("", "coverage")],
        "build": [("images", "")],
        "publish": [("push", ""), ("sign", "")],
    }
    assert {"images", "push", "sign"} <= make_targets()


def matrix(job: dict[str, Any]) -> str:
    """The versions that a job is run with, of either."""
    return str(job["strategy"]["matrix"] if "strategy" in job else job["parallel"]["matrix"])


@pytest.mark.parametrize("jobs", [github()["jobs"], gitlab_jobs()], ids=["github", "gitlab"])
def test_both_try_every_version_of_python_and_postgresql_that_is_promised(jobs: dict[str, dict[str, Any]]) -> None:
    promised = re.findall(r":: Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert re.findall(r"3\.\d+", matrix(jobs["test"])) == promised == ["3.11", "3.12", "3.13", "3.14"]
    assert re.findall(r"\b1\d\b", matrix(jobs["postgres"])) == ["15", "16", "17", "18"]
    given = str(jobs["postgres"])
    assert "GPU_DEV_TEST_DATABASE_URL" in given


TOGETHER = "--jobs=2 --output-sync=target"


@pytest.mark.parametrize(
    ("part", "made"),
    [
        ("all", [f"{TOGETHER} check web collect", "test"]),
        ("check", ["check", "docs"]),
        ("test", [f"{TOGETHER} web collect", "test"]),
        ("coverage", [f"{TOGETHER} web collect", "coverage"]),
    ],
)
def test_the_one_definition_runs_the_part_that_is_asked_for(tmp_path: Path, part: str, made: list[str]) -> None:
    for name in ("make", "node", "npm", "chromium", "prometheus"):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\n[ {name} != make ] || echo "$*" >> "{tmp_path}/made"\n')
        program.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", str(ROOT / ".ci" / "run"), part],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "made").read_text().splitlines() == made


def test_each_guard_is_broken_and_each_property_explored_weekly_and_not_at_every_commit() -> None:
    weekly = read_yaml(WEEKLY.read_text())
    assert [commands(job)[-1] for job in weekly["jobs"].values()] == ["make mutants", "make explore"]
    assert weekly["permissions"] == {"contents": "read"}
    # YAML takes the bare word `on` for a truth.
    assert {*weekly[True]} == {"schedule", "workflow_dispatch"}
    for name in ("mutants", "explore"):
        job = gitlab()[name]
        assert job["script"] == [f"make {name}"]
        assert job["rules"] == [{"if": '$CI_PIPELINE_SOURCE == "schedule"'}]
        assert name in make_targets()


def test_nothing_is_published_untested_or_untagged() -> None:
    publish = github()["jobs"]["publish"]
    assert {*publish["needs"]} == {"lint", "test", "postgres", "build"}
    assert publish["if"] == "startsWith(github.ref, 'refs/tags/v')"
    # A job has a permission only where it is given one.
    assert github()["permissions"] == {"contents": "read"}
    assert [name for name, job in github()["jobs"].items() if "permissions" in job] == ["publish"]
    stages = gitlab()["stages"]
    assert stages[-1] == "publish"
    assert {job["stage"] for job in gitlab_jobs().values()} == {*stages}
    assert gitlab()["publish"]["rules"] == [{"if": "$CI_COMMIT_TAG =~ /^v/"}]


def test_what_others_have_made_is_named_by_its_commit() -> None:
    """A tag can be moved, and what runs here can push images."""
    texts = [path.read_text() for path in (WORKFLOW, WEEKLY)]
    lines = [line for text in texts for line in text.splitlines() if "uses:" in line]
    assert len(lines) > 2
    for line in lines:
        assert re.fullmatch(r" +- uses: [a-z-]+/[a-z-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


def texts(part: object) -> Iterator[str]:
    if isinstance(part, dict):
        for nested in part.values():
            yield from texts(nested)
    elif isinstance(part, list):
        for nested in part:
            yield from texts(nested)
    elif isinstance(part, str):
        yield part


@pytest.mark.parametrize("pipeline", [github(), gitlab()], ids=["github", "gitlab"])
def test_no_registry_and_no_secret_stands_in_them(pipeline: dict[str, Any]) -> None:
    said = "\n".join(texts(pipeline))
    assert not re.search(r"\b(ghcr|docker|quay|gcr|registry)\.[a-z]+[./]", said), said
    for text in re.findall(r".*(?:TOKEN|password).*", said):
        assert "$REGISTRY_TOKEN" in text or "secrets.REGISTRY_TOKEN" in text


def fakes(folder: Path) -> dict[str, str]:
    """Programs that write down what they were called with."""
    for name in ("docker", "cosign"):
        program = folder / name
        program.write_text(f'#!/bin/sh\necho "{name} $*" >> "{folder}/called"\n')
        program.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def run(script: Path, folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = fakes(folder) | variables
    return subprocess.run(
        ["sh", str(script), *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_images_are_pushed_with_what_is_in_them(tmp_path: Path) -> None:
    done = run(PUSH, tmp_path, **GIVEN)
    assert done.returncode == 0, done.stderr
    called = (tmp_path / "called").read_text()
    assert called.startswith("docker buildx bake --push ")
    assert "type=sbom" in called
    assert "type=provenance" in called


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"REGISTRY": ""}, "REGISTRY"),
        ({"REGISTRY": "registry.test"}, "REGISTRY"),
        ({"TAG": ""}, "TAG"),
        ({"BASE_IMAGE": "python:3.11-slim"}, "BASE_IMAGE needs a digest"),
        ({"NODE_IMAGE": "node:24-slim"}, "NODE_IMAGE needs a digest"),
    ],
)
def test_what_would_be_pushed_wrongly_is_not(tmp_path: Path, change: dict[str, str], named: str) -> None:
    done = run(PUSH, tmp_path, **{**GIVEN, **change})
    assert done.returncode == 2
    assert named in done.stderr
    assert not (tmp_path / "called").exists()


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_what_was_pushed_is_signed_by_its_digest(tmp_path: Path) -> None:
    told: dict[str, Any] = {
        name: {"image.name": f"registry.test:5000/team/{name}:1.2.3", "containerimage.digest": digest}
        for name, digest in DIGESTS.items()
    }
    (tmp_path / "images.json").write_text(json.dumps({**told, "buildx.build.warnings": []}))
    done = run(SIGN, tmp_path, "images.json")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "called").read_text().splitlines() == [
        f"cosign sign --yes registry.test:5000/team/{name}@{digest}" for name, digest in DIGESTS.items()
    ]
    (tmp_path / "images.json").write_text("{}")
    done = run(SIGN, tmp_path, "images.json")
    assert done.returncode == 1
    assert "push.sh" in done.stderr

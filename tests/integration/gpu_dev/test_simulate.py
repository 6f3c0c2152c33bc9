"""`gpu-dev simulate` against a whole system."""

import json
from pathlib import Path

import pytest

from tests.integration.gpu_dev.conftest import System

TRACE = """submitted_at,duration_s,gpus,asked_s,user
2030-01-01T00:00:00Z,36000,8,36000,ann
2030-01-01T01:00:00Z,36000,8,36000,ann
2030-01-01T02:00:00Z,3600,1,3600,bo
"""

POLICY = """[default]
max_gpus = "unlimited"
[user.ann]
max_gpus = 8
[user.ann.gpu_type.h100]
max_gpus = 4
"""


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return str(path)


def test_a_trace_with_a_node_more(system: System, trace: str) -> None:
    asked = ("simulate", "--trace", trace, "--gpus", "8", "--node-size", "8", "--add-nodes", "1")
    done = system.cli(*asked)
    assert done.returncode == 0, done.stderr
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines[:4] == ["TODAY CHANGED", "Jobs 3 3", "GPUs 8 16", "Mean wait 9h 2h40m"]
    assert "With 1 more node, jobs would have waited 2h40m on average: 70% less than the 9h of today." in lines
    found = json.loads(system.cli(*asked, "--json").stdout)
    assert (found["jobs"], found["today"]["mean_s"], found["changed"]["broken"]) == (3, 32_400, 0)


def test_another_policy_from_a_file(system: System, trace: str, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    done = system.cli("simulate", "--trace", trace, "--gpus", "16", "--policy", str(policy), "--fair-share", "7d")
    assert done.returncode == 0, done.stderr
    assert "With fair shares with a half-life of 7d and the given rules" in done.stdout
    policy.write_text("[default]\nmax_gpu = 8\n")
    refused = system.cli("simulate", "--trace", trace, "--policy", str(policy))
    assert refused.returncode == 2
    assert "default: max_gpu is not known here; leave it out" in refused.stderr


def test_without_a_past_there_is_nothing_to_simulate(system: System) -> None:
    done = system.cli("simulate", "--history", "30d")
    assert done.returncode != 0
    assert "No job is left to simulate." in done.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("submitted_at,gpus\n2030-01-01T00:00:00Z,1\n", "The first line has no column duration_s; it needs"),
        (
            "submitted_at,duration_s,gpus\n2030-01-01,1,1\nsoon,1,1\n",
            "Line 3, column submitted_at: 'soon' is not a time, such as 2026-11-26T14:00:00Z.",
        ),
        (f'submitted_at,duration_s,gpus\n"{"x" * 140_000}\n', "is not CSV: a cell has no end."),
        ("\N{LATIN SMALL LETTER U WITH DIAERESIS}", "is not UTF-8 text."),
        ("submitted_at,duration_s,gpus\n", "has no jobs"),
    ],
)
def test_a_cell_that_can_not_be_read_is_named(unreachable: System, tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(text.encode("latin-1"))
    done = unreachable.cli("simulate", "--trace", str(path))
    assert done.returncode == 2
    assert words in done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--gpus", "8"), "--gpus and --node-size are for --trace"),
        (("--type", "h100"), "--type is for the nodes of --add-nodes"),
        (("--history", "soon"), "'soon' is not a length of time. Write it as 12h, 7d or 12w"),
        (("--trace", "nowhere.csv"), "nowhere.csv can't be read"),
        (("--trace", "x", "--history", "1d"), "Give either --trace or --history"),
    ],
)
def test_options_that_make_no_sense_are_said(unreachable: System, options: tuple[str, ...], words: str) -> None:
    done = unreachable.cli("simulate", *options)
    assert done.returncode == 2
    assert words in done.stderr

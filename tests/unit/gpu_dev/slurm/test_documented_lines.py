"""The page for users of Slurm: each line of Slurm's commands is taken, and asks for what the line beside it does."""

import re
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import typer

from gpu_dev.inputs.durations import parse_duration
from gpu_dev.main import app
from gpu_dev.slurm.formats import read_format
from gpu_dev.slurm.job_lines import job_fields
from gpu_dev.slurm.reading.list_options import SCANCEL, SINFO, SQUEUE
from gpu_dev.slurm.reading.options import SBATCH, SRUN
from gpu_dev.slurm.reading.requests import read_request
from gpu_dev.slurm.reading.scripts import Script, faults_of, read_directives, read_script
from gpu_dev.slurm.reading.words import read_words
from gpu_dev.slurm.saying import remarks_of

TABLES = {"sbatch": SBATCH, "srun": SRUN, "squeue": SQUEUE, "scancel": SCANCEL, "sinfo": SINFO}
PAGE = (Path(__file__).parents[4] / "docs" / "coming-from" / "slurm.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## Slurm's own commands")[2].partition("## The same in both")[0]
ROWS = re.findall(r"^\| (`.*`) \| (`.*) \|$", SECTION, re.MULTILINE)
LINES = [line for slurm, _ in ROWS for line in re.findall("`([^`]+)`", slurm)]
JOBS = [row for row in ROWS if row[0].startswith(("`sbatch", "`srun"))]
FLAGS = {"test_only": "test_only", "wait": "wait", "pty": "tty", "requeue": "requeue"}


def test_the_page_has_them() -> None:
    assert {line.partition(" ")[0] for line in LINES} == {*TABLES}
    assert len(JOBS) > 10


@pytest.mark.parametrize("line", LINES)
def test_a_line_is_taken_and_nothing_of_it_passed_over(line: str) -> None:
    name, *words = shlex.split(line)
    typed = read_words(words, TABLES[name], mixed=name not in ("sbatch", "srun"))
    assert remarks_of(typed) == ([], [])
    for one in typed.given:
        if name == "squeue" and one.option.name == "format":
            read_format(one.value or "", job_fields(datetime(2030, 1, 31, tzinfo=UTC)))


@pytest.mark.parametrize(("slurm", "ours"), JOBS)
def test_both_lines_ask_for_the_same(slurm: str, ours: str) -> None:
    name, *words = shlex.split(re.findall("`([^`]+)`", slurm)[0])
    typed = read_words(words, TABLES[name])
    reading = read_request(typed.given, {})
    assert not reading.refusals
    asked = reading.asked
    _, command, *options = shlex.split(re.findall("`([^`]+)`", ours)[0])
    root: Any = typer.main.get_command(app)
    _, parser, _ = root.resolve_command(typer.Context(root), [command])
    given = parser.make_context(command, options).params
    assert command == ("run" if name == "srun" else "submit")
    assert (asked.gpus, asked.gpu_type, asked.nodes) == (given["gpus"], given["gpu_type"], given["nodes"] or 1)
    assert asked.duration == parse_duration(given["duration"]) > timedelta()
    assert (asked.name, asked.working_dir, asked.project, asked.booking, asked.priority) == (
        given["name"], given["working_dir"], given["project"], given["booking"], given["priority"],
    )  # fmt: skip
    assert [*asked.after] == [*(given["after"] or ())]
    assert [*asked.env] == [*(given["env"] or ())]
    for flag, option in FLAGS.items():
        assert getattr(asked, flag) == given.get(option, False)
    if name == "srun":
        assert typed.operands == given["command"]


def test_the_script_of_the_page_is_taken_with_the_warnings_that_the_page_names() -> None:
    text = SECTION.partition('```sh title="train.sh"\n')[2].partition("```")[0]
    script = read_script(text)
    assert isinstance(script, Script)
    assert not [*faults_of(script)]
    lines = read_directives(script, SBATCH)
    reading = read_request(lines.given, {})
    assert not lines.refusals + reading.refusals
    named = {(warning.about.partition("=")[0], str(warning.line)) for warning in reading.warnings}
    assert named == {*re.findall(r"`(--[a-z-]+)`\s\(line (\d)\)", SECTION)}

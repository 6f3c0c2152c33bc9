"""Batch scripts: which lines are read, by which shell one runs, and lines that would mean something else here."""

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_dev.slurm.reading.options import SBATCH
from gpu_dev.slurm.reading.scripts import (
    LONGEST_SCRIPT,
    Script,
    faults_of,
    late_directives,
    read_directives,
    read_script,
    wrapped,
)
from gpu_dev.slurm.reading.words import Remark


def script(text: str) -> Script:
    read = read_script(text)
    assert isinstance(read, Script)
    return read


def test_lines_are_read_as_slurm_does() -> None:
    read = read_directives(
        script(
            "#!/bin/bash\n"
            "# a comment\n"
            "#SBATCH --gpus=2 -t 5   # two\n"
            "\n"
            "   \n"
            "##SBATCH --array=1\n"
            " #SBATCH --array=1\n"
            '#SBATCH --job-name="two words"\n'
            "#SBATCH -o out\\ put\n"
            "echo\n"
            "#SBATCH --array=1\n"
        ),
        SBATCH,
    )
    assert not read.refusals
    assert [(one.text, one.line) for one in read.given] == [
        ("--gpus=2", 3),
        ("--time=5", 3),
        ("--job-name=two words", 8),
        ("--output=out put", 9),
    ]


def test_lines_that_cannot_be_read_are_named() -> None:
    read = read_directives(script("#!/bin/sh\n#SBATCH -J 'x\n#SBATCH gpus=1\n#SBATCH --nope\n"), SBATCH)
    assert list(map(str, read.refusals)) == [
        "line 2: #SBATCH -J 'x: A quotation mark is not closed.",
        "line 3: gpus=1: An option begins with - here.",
        "line 4: --nope: This option is not known. Remove it from the script, or see those that are with --help.",
    ]


def test_late_lines_are_named() -> None:
    [late] = late_directives(script("#!/bin/sh\n#SBATCH -G 1\ntrue\n#SBATCH -t 1\n"))
    assert str(late) == "line 4: #SBATCH -t 1: It comes after the first command, so it is not read, as in Slurm."


@pytest.mark.parametrize(
    ("text", "shell"),
    [
        ("#!/bin/bash\n", ("/bin/bash",)),
        ("#!/bin/bash -l\n", ("/bin/bash", "-l")),
        ("#! /usr/bin/env bash\n", ("/usr/bin/env", "bash")),
        ("#!/bin/sh", ("/bin/sh",)),
    ],
)
def test_the_first_line_names_the_shell(text: str, shell: tuple[str, ...]) -> None:
    assert script(text).shell == shell


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "begins with #!"),
        ("echo\n", "begins with #!"),
        ("#!/usr/bin/env python3\n", "Only shells"),
        ("#!/usr/bin/perl\n", "Only shells"),
        ("#!/bin/sh\r\ntrue\r\n", "dos2unix"),
        ("#!/bin/sh\ntrue\0\n", "line 2: \\0: A script has no null characters."),
        ("#!/bin/sh\n" + "x" * LONGEST_SCRIPT, "32,000"),
    ],
)
def test_a_text_that_is_no_script_is_refused(text: str, said: str) -> None:
    refused = read_script(text)
    assert isinstance(refused, Remark)
    assert said in str(refused)


@given(st.text(alphabet="#SBATCH-=!/bin sh'\"\\\n\r\x0c\u2028$run{}", max_size=60))
def test_no_text_breaks_the_reading(text: str) -> None:
    read = read_script(f"#!/bin/sh\n{text}")
    if isinstance(read, Script):
        words = read_directives(read, SBATCH)
        numbers = {given.line for given in words.given} | {remark.line for remark in words.refusals}
        numbers |= {remark.line for remark in (*faults_of(read), *late_directives(read))}
        assert numbers <= {*range(1, len(read.lines) + 1)}
        assert "\n".join(read.lines) == f"#!/bin/sh\n{text}"


@pytest.mark.parametrize(
    ("line", "about"),
    [
        ("srun python train.py; A=1 srun id", []),
        ("srun --ntasks=2 python train.py", ["srun"]),
        ("A=1 srun -n 2 python train.py", ["srun"]),
        ("if true; then srun -l id; fi", ["srun"]),
        ("srun \\", ["srun"]),
        ("exec srun id", ["srun"]),
        ("# srun id", []),
        ("echo mysrun; ./srun.sh", []),
        ("rm -rf $SLURM_TMPDIR/x ${SLURM_CPUS_ON_NODE}", ["SLURM_TMPDIR", "SLURM_CPUS_ON_NODE"]),
        ("echo ${SLURM_TMPDIR:-/tmp} ${SLURM_CPUS_ON_NODE-0}", []),
        ("mkdir $SLURM_JOB_ID ${SLURM_JOB_NAME}", []),
        ("SLURM_TMPDIR=/tmp; echo $SLURM_TMPDIR", []),
    ],
)
def test_lines_that_would_mean_something_else_are_named(line: str, about: list[str]) -> None:
    assert [fault.about for fault in faults_of(script(f"#!/bin/sh\n{line}\n"))] == about


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_steps_without_options_run_their_command(shell: str) -> None:
    found = script(f"#!/bin/{shell}\nset -e\nA=1 srun sh -c 'echo \"$A $1\"; exit 3' x 'a b'\necho never\n")
    ran = subprocess.run(found.command([], {}), capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (3, "1 a b\n"), ran.stderr


def test_a_command_runs_the_script_with_its_words_and_counts_its_lines() -> None:
    variables = {"SLURM_JOB_NAME": "it's", "SLURM_SUBMIT_DIR": "/x", "SLURM_GPUS_ON_NODE": "2"}
    text = 'echo "$1|$#|$SLURM_JOB_NAME|$SLURM_JOB_ID|$SLURM_NODEID"\nenv | grep -c SLURM\n'
    for found, line in ((script(f'#!/bin/bash\n{text}echo "$LINENO"\n'), "4\n"), (wrapped(text), "")):
        ran = subprocess.run(
            found.command(["a b", "c"], variables),
            env={"PATH": "/usr/bin:/bin", "GPU_DEV_JOB_ID": "job-1", "NODE_RANK": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.stdout == f"a b|2|it's|job-1|1\n0\n{line}", ran.stderr


@pytest.mark.parametrize(("size", "said"), [("10", "0,9,1,10\n"), (None, ",,,\n")])
def test_a_script_finds_the_range_of_its_array(size: str | None, said: str) -> None:
    found = wrapped("echo " + ",".join(f"$SLURM_ARRAY_TASK_{word}" for word in ("MIN", "MAX", "STEP", "COUNT")))
    array = {} if size is None else {"GPU_DEV_ARRAY_SIZE": size}
    environment = {"PATH": "/usr/bin:/bin", "GPU_DEV_JOB_ID": "job-1.2", **array}
    ran = subprocess.run(found.command([], {}), env=environment, capture_output=True, text=True, check=False)
    assert ran.stdout == said, ran.stderr

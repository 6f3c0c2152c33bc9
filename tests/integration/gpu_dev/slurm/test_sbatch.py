"""`sbatch` and `srun` as processes against the real system."""

import json
import os
import re
from pathlib import Path
from typing import Any

from tests.integration.gpu_dev.conftest import System
from tests.integration.gpu_dev.slurm.conftest import Slurm


def job(system: System, job_id: str) -> dict[str, Any]:
    return json.loads(system.cli("show", job_id, "-o", "json").stdout)


def test_a_script_is_run_by_its_lines(system: System, slurm: Slurm, tmp_path: Path) -> None:
    script = tmp_path / "work" / "train.sh"
    script.write_text(
        "#!/bin/bash\n#SBATCH --job-name=train --gres=gpu:h100:2\n#SBATCH -t 90\n#SBATCH --mem=64M -c 1 -o out\n\n"
        'echo "$1 $GREETING $CUDA_VISIBLE_DEVICES $PWD"\n'
        '[ "$SLURM_JOB_ID" = "$GPU_DEV_JOB_ID" ] && echo "$SLURM_JOB_NAME on $SLURM_NNODES, $SLURM_CPUS_PER_TASK CPU"\n'
        "env | grep SLURM\nsrun echo step\nexit 3\n"
    )
    made = slurm("sbatch", "--wait", "--export=GREETING,A='x,y'", "train.sh", "first word", GREETING="hello")
    assert re.fullmatch(r"Submitted batch job job-\w+\n", made.stdout), made.stderr
    assert made.returncode == 3
    assert made.stderr.startswith("sbatch: warning: line 4: --output=out: It is passed over. No file is written.")
    job_id = made.stdout.split()[-1]
    shown = job(system, job_id)
    assert (shown["name"], shown["gpus"], shown["gpu_type"], shown["duration"]) == ("train", 2, "h100", "PT1H30M")
    assert shown["resources"] == {"cpus": 1, "memory": 64 * 2**20, "shm": None}
    first, second, step = system.cli("logs", job_id).stdout.splitlines()
    assert re.fullmatch(rf"first word hello \d,\d {re.escape(os.path.realpath(script.parent))}", first)
    assert (second, step) == ("train on 1, 1 CPU", "step")


def test_a_line_that_cannot_be_honoured_is_named_and_nothing_is_submitted(system: System, slurm: Slurm) -> None:
    script = "#!/bin/sh\n#SBATCH --gpus=1 --time=1\n\n#SBATCH --array=1-9\n#SBATCH --no-such\ntrue\n"
    refused = slurm("sbatch", "--time=100-0", stdin=script)
    assert (refused.returncode, refused.stdout) == (2, "")
    beginnings = [
        "error: --time=100-0: A time limit is at least a minute and at most 90 days.",
        "error: line 4: --array=1-9: Elements are numbered from 0 on, without gaps.",
        "error: line 5: --no-such: This option is not known. Remove it from the script",
        "Nothing was submitted.",
    ]
    for line, beginning in zip(refused.stderr.splitlines(), beginnings, strict=True):
        assert line.startswith(f"sbatch: {beginning}")
    assert system.cli("list", "--all", "-o", "name").stdout == ""


def test_the_command_line_goes_before_the_script(system: System, slurm: Slurm) -> None:
    made = slurm("sbatch", "--parsable", "-J", "other", "-t", "5", stdin="#!/bin/sh\n#SBATCH -J a -t 9 -G 1\ntrue\n")
    assert re.fullmatch(r"job-\w+\n", made.stdout), made.stderr
    shown = job(system, made.stdout.strip())
    assert (shown["name"], shown["duration"]) == ("other", "PT5M")


def test_wrap_and_test_only(system: System, slurm: Slurm) -> None:
    tested = slurm("sbatch", "--test-only", "-G1", "-t1:00:00", "--wrap=true")
    assert (tested.returncode, tested.stdout) == (0, "Would start now.\n"), tested.stderr
    assert system.cli("list", "--all", "-o", "name").stdout == ""
    made = slurm("sbatch", "--parsable", "-W", "-G1", "-t1", "--wrap=echo $SLURM_GPUS_ON_NODE\nexit 4")
    assert made.returncode == 4, made.stderr
    assert system.cli("logs", made.stdout.strip()).stdout == "1\n"
    beyond = slurm("sbatch", "--test-only", "-G1", "-t60-0", "--wrap=true")
    assert (beyond.returncode, beyond.stdout) == (4, "")


def test_a_job_waits_for_another_one(system: System, slurm: Slurm) -> None:
    first = slurm("sbatch", "--parsable", "-G1", "-t1", "--wrap=exit 1").stdout.strip()
    last = slurm("sbatch", "--parsable", "-W", "-G1", "-t1", "--requeue", "-d", f"afternotok:{first}", "--wrap=true")
    assert last.returncode == 0, last.stderr
    shown = job(system, last.stdout.strip())
    assert [(one["job"], one["when"]) for one in shown["after"]] == [(first, "failed")]
    assert shown["retries"]["on"] == ["node_lost", "preempted"]
    unknown = slurm("sbatch", "-G1", "-t1", "-d", "afterok:job-zzzzzzzz", "--wrap=true")
    assert (unknown.returncode, unknown.stdout) == (4, "")


def test_srun_is_in_the_foreground(system: System, slurm: Slurm) -> None:
    ran = slurm("srun", "-G", "1", "-t", "1", "sh", "-c", "echo out; echo err >&2; cat; exit 3", stdin="in\n")
    assert (ran.returncode, ran.stdout) == (3, "out\nerr\nin\n"), ran.stderr
    refused = slurm("srun", "-G", "1", "-t", "1", "--label")
    assert refused.returncode == 2
    assert "--label: Output has no labels here." in refused.stderr
    assert "COMMAND: Name the command" in refused.stderr
    inside = slurm("srun", "-G", "1", "-t", "1", "true", GPU_DEV_JOB_ID="job-1")
    assert (inside.returncode, "A job has no steps." in inside.stderr) == (2, True)
    assert system.cli("list", "--all", "-o", "name").stdout.count("job-") == 1


def test_an_array_runs_the_script_for_each_index(system: System, slurm: Slurm) -> None:
    words = "echo $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT in $SLURM_ARRAY_JOB_ID"
    script = f"#!/bin/sh\n#SBATCH -G 1 -t 5 --array=0-2%2\n{words}\n"
    made = slurm("sbatch", "--parsable", "--wait", stdin=script)
    assert made.returncode == 0, made.stderr
    array_id = made.stdout.strip()
    assert job(system, array_id)["array"]["succeeded"] == 3
    assert system.cli("logs", array_id).stdout == "".join(f"[{n}] {n} of 3 in {array_id}\n" for n in range(3))

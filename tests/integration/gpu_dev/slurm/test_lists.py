"""`squeue`, `scancel` and `sinfo` against the real system: mostly in this process, which is quicker than as one."""

import re

from tests.integration.gpu_dev.conftest import System
from tests.integration.gpu_dev.slurm.conftest import Slurm
from tests.waiting import eventually_sync


def submit(slurm: Slurm, *words: str, who: str = "alice") -> str:
    made = slurm("sbatch", "--parsable", *words, "--wrap=sleep 600", who=who)
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


def test_squeue_and_scancel(system: System, slurm: Slurm) -> None:
    running = submit(slurm, "-G4", "-t60", "-Jholds")
    eventually_sync(lambda: system.slurm("squeue", "-h", "-o%t", "-j", running).stdout == "R\n")
    waiting = submit(slurm, "--gpus=h100:1", "-t30", "-Jnext")
    theirs = submit(slurm, "-G1", "-t20", "-Jtheirs", who="bob")
    order = f"{theirs} PD\n{waiting} PD\n{running} R\n"
    eventually_sync(lambda: system.slurm("squeue", "-h", "-o", "%i %t", who="admin").stdout == order)
    table = system.slurm("squeue").stdout
    assert table.splitlines()[0].split() == [
        "JOBID", "PARTITION", "NAME", "USER", "ST", "TIME", "NODES", "NODELIST(REASON)",
    ]  # fmt: skip
    assert re.search(rf"^ +{waiting} +h100 +next +alice PD +0:00 +1 \(\w+\)$", table, re.MULTILINE), table
    assert slurm("squeue", "--me", "-h", "-o%j").stdout == "next\nholds\n"  # as a process
    assert system.slurm("squeue", "-h", "-o%j").stdout == "next\nholds\n"
    assert system.slurm("squeue", "-u", "bob", "-h", "-o%i", who="admin").stdout == f"{theirs}\n"
    assert system.slurm("squeue", "-u", "bob", "-h").stdout == ""
    assert system.slurm("squeue", "-u", "alice", "-t", "R", "-h", "-o%i").stdout == f"{running}\n"
    starts = system.slurm("squeue", "--start", "--me", "-h", "-o%j %S").stdout
    assert re.fullmatch(r"next \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\n", starts), starts

    assert system.slurm("scancel", waiting[4:]).returncode == 2  # an id without its beginning may be one of Slurm's
    assert system.slurm("scancel").returncode == 2
    refused = system.slurm("scancel", waiting, "-s", "USR1")
    assert (refused.returncode, "Nothing was cancelled." in refused.stderr) == (2, True)
    both = system.slurm("scancel", theirs, waiting)
    assert (both.returncode, both.stderr.startswith(f"scancel: error: {theirs}: ")) == (3, True)  # bob's
    assert system.slurm("squeue", "-h", "-o%t", "-tall", "-j", waiting).stdout == "CA\n"
    last = submit(slurm, "-G1", "-t30", "-Jlast")
    assert system.slurm("scancel", "--me", "--state=PENDING").returncode == 0
    eventually_sync(lambda: system.slurm("squeue", "-h", "-o%t", "-tall", "-j", last).stdout == "CA\n")
    both_ids = f"{running},{waiting}"
    assert system.slurm("squeue", "-h", "-o%i %t", "-j", both_ids).stdout == f"{running} R\n"
    assert system.slurm("squeue", "-h", "-o%i", "-t", "CA,PD", "-j", both_ids).stdout == f"{waiting}\n"
    assert system.slurm("squeue", "-h", "-o%i", "-tall", "-j", both_ids).stdout == f"{running}\n{waiting}\n"
    ended = system.slurm("squeue", "-h", "-j", waiting)
    assert (ended.returncode, ended.stdout) == (0, "")
    for words in (["-n", "holds"], ["--me", running], ["-u", "bob", running]):  # none of the administrator's or bob's
        assert system.slurm("scancel", *words, who="admin").returncode == 0
    assert system.slurm("squeue", "-h", "-o%t", "-j", running).stdout == "R\n"
    assert slurm("scancel", "-u", "alice", who="admin").returncode == 0
    eventually_sync(lambda: system.slurm("squeue", "-h", "-o%t", "-tall", "-j", running).stdout == "CA\n")
    assert system.slurm("squeue", "-h", "-tall", "--me", "-o%j %t").stdout == "last CA\nnext CA\nholds CA\n"


def test_squeue_refuses_what_it_cannot_show(system: System) -> None:
    refused = system.slurm("squeue", "--sort=i", "-o", "%i %C", "-t", "PD,XX", "--all")
    assert (refused.returncode, refused.stdout) == (2, "")
    said = [line.removeprefix("squeue: ") for line in refused.stderr.splitlines()]
    assert [line.partition(". ")[0] for line in said] == [
        "error: --sort=i: Waiting jobs are in the order of the queue",
        "error: --states=PD,XX: XX is no state here",
        "error: --format=%i %C: %C is no column here",
        "All options and what they are here: squeue --help",
    ]
    assert system.slurm("squeue", "-j", "123").returncode == 2
    assert system.slurm("squeue", "-j", "job-zzzzzzzz").returncode == 3
    assert "warning: --all" in system.slurm("squeue", "-a").stderr


def test_sinfo(system: System, slurm: Slurm) -> None:
    assert slurm("sinfo", "-h", "-o", "%P %t %D %G %F").stdout == "h100 idle 1 gpu:h100:4 0/1/0/1\n"
    job_id = submit(slurm, "-G1", "-t10")
    eventually_sync(lambda: system.slurm("sinfo", "-h", "-o%T").stdout == "mixed\n")
    head, line = system.slurm("sinfo").stdout.splitlines()
    assert head.split() == ["PARTITION", "AVAIL", "TIMELIMIT", "NODES", "STATE", "NODELIST"]
    assert line.split()[:5] == ["h100", "up", "90-00:00:00", "1", "mix"]
    [node] = system.slurm("sinfo", "-N", "-h", "-o%n").stdout.splitlines()
    assert system.slurm("squeue", "-h", "-o%R", "-j", job_id).stdout == f"{node}\n"
    assert system.slurm("sinfo", "-p", "a100", "-h").stdout == ""
    assert system.slurm("sinfo", "-l").returncode == 2
    assert system.slurm("sinfo", "--summarize").returncode == 0


def test_as_processes_without_a_server_or_a_token(slurm: Slurm) -> None:
    unreachable = slurm("squeue", GPU_DEV_SERVER="http://127.0.0.1:9")
    assert (unreachable.returncode, unreachable.stdout) == (5, "")
    assert unreachable.stderr.startswith("error: ")
    assert slurm("sinfo", GPU_DEV_TOKEN="wrong").returncode == 6
    assert slurm("scancel").returncode == 2

"""Options of the commands that ask for a job."""

from typing import Annotated

import typer

from gpu_dev.session import complete_job_id
from reservation_core.domain.request_terms import MOST_RETRIES

Command = Annotated[list[str] | None, typer.Argument(metavar="COMMAND", help="The command, after `--`.")]
Gpus = Annotated[int | None, typer.Option("--gpus", "-g", min=0, help="GPUs on each node; 0 for CPUs alone.")]
GpuType = Annotated[str | None, typer.Option("--type", "-t", help="The type, such as h100 (default: any).")]
For = Annotated[str | None, typer.Option("--for", "-d", help="For how long at most: 4h, 90m, 1h30m, 2d, PT4H.")]
Nodes = Annotated[int | None, typer.Option("--nodes", "-N", min=1, help="Number of nodes (default: 1).")]
Name = Annotated[str | None, typer.Option("--name", "-n", help="A name to recognise it by.")]
Env = Annotated[
    list[str] | None,
    typer.Option("--env", "-e", metavar="K=V", help="An environment variable; `K` alone copies it from this shell."),
]
Image = Annotated[str | None, typer.Option("--image", help="The container image (default: the server's).")]
WorkingDir = Annotated[
    str | None,
    typer.Option(
        "--working-dir", help="The working directory; `.` is the current one (default: the image's, or a new folder)."
    ),
]
Priority = Annotated[
    int | None,
    typer.Option("--priority", help="Jobs of higher priority go first (default: 0; above 0: administrators)."),
]
Booking = Annotated[str | None, typer.Option("--booking", "-b", help="Use the GPUs of this booking: its id or title.")]
Project = Annotated[
    str | None, typer.Option("--project", "-p", help="For this project (default: none; in a booking: the booking's).")
]
Secret = Annotated[
    list[str] | None,
    typer.Option(
        "--secret", metavar="NAME", help="A secret of yours as a variable; `NAME=VARIABLE` or `NAME=/path` for a file."
    ),
]
Disk = Annotated[
    list[str] | None,
    typer.Option(
        "--disk",
        metavar="NAME",
        help="A disk, at $GPU_DEV_DISK_FOLDER/disks/NAME; `NAME:/path` elsewhere, `NAME:ro` to only read.",
    ),
]
NoHome = Annotated[
    bool,
    typer.Option("--no-home", help="Start a session without your disk `home`; otherwise it is at /home/dev."),
]
After = Annotated[
    list[str] | None,
    typer.Option(
        "--after",
        metavar="ok:ID",
        help="Wait until this job has succeeded (`ok:`), ended (`any:`), failed (`failed:`) or started (`started:`).",
    ),
]
Inactivity = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="End the session after nobody was connected for this long, such as 30m (default: the policy's).",
    ),
]
Retries = Annotated[
    int | None,
    typer.Option(
        "--retries",
        min=1,
        max=MOST_RETRIES,
        help="Run it again, at most this many times (default: 0): if it failed, lost its node or gave its GPUs up.",
    ),
]
Requeue = Annotated[
    bool, typer.Option("--requeue", help="Run it again after its node was lost or others took its GPUs.")
]
Sync = Annotated[
    str | None,
    typer.Option("--sync", metavar="DIR", help="Send this folder, without what .gitignore names; the job works in it."),
]
Fetch = Annotated[
    list[str] | None,
    typer.Option("--fetch", metavar="PATH", help="Bring this path of the job's folder back after the end."),
]
Array = Annotated[
    str | None,
    typer.Option("--array", metavar="0-N%M", help="Run it for each index from 0 to N, at most M of them at once."),
]
Preemptible = Annotated[
    bool,
    typer.Option("--preemptible", help="Use free GPUs outside all quotas, and give them back when others need them."),
]
MinRuntime = Annotated[
    str | None, typer.Option("--min-runtime", metavar="TIME", help="Keep the GPUs for at least this long, such as 30m.")
]
EndSignal = Annotated[
    str | None,
    typer.Option("--signal", metavar="USR1@300", help="Send the command this signal so many seconds before its end."),
]
Cpus = Annotated[
    float | None,
    typer.Option("--cpus", help="CPUs on each node (default: in proportion to its GPUs; in a booking at most that)."),
]
Memory = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="SIZE",
        help="Memory on each node, such as 64Gi (default: in proportion to its GPUs; in a booking at most that).",
    ),
]
Shm = Annotated[
    str | None, typer.Option("--shm", metavar="SIZE", help="The size of /dev/shm, a part of its memory, such as 8Gi.")
]
JsonFile = Annotated[
    str | None, typer.Option("--json-file", metavar="FILE", help="The whole request as JSON; `-` is stdin.")
]
Again = Annotated[
    str | None,
    typer.Option(
        metavar="ID",
        autocompletion=complete_job_id,
        help="Resubmit this job's request; options and a command override it. Its booking is left out.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show the verdict: starts now, accepted, or refused.")]
TestOnly = Annotated[
    bool, typer.Option("--test-only", help="Only show when it would start, and what would start sooner.")
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until it has ended; exit code 1 unless it succeeded.")]
Timeout = Annotated[
    str | None,
    typer.Option(help="Wait no longer than this (exit code 124; default: until it has ended); the job goes on."),
]
Tty = Annotated[bool, typer.Option("--tty", help="Run the command in a terminal; its output is not kept for `logs`.")]

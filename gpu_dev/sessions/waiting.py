"""Wait for a job's start: place, reason and promised start, in one line of a terminal or a line for each change."""

import uuid
from collections.abc import Callable

import typer

from gpu_dev.client import GpuDevClient
from gpu_dev.display.local_times import minute
from gpu_dev.errors import ClientError, ExitCode
from gpu_dev.following import has_started, wait_until, waiting_line
from gpu_dev.terminal import StatusLine, say
from gpu_dev.wire.jobs import Job, JobSubmit
from reservation_core.domain.disks.disk_uses import DISKS_VARIABLE, HOME, DiskUse, fault_of_home
from reservation_core.domain.status_words import promise_stands
from reservation_core.domain.statuses import JobStatus


def say_how_to_go_on(job_id: str) -> None:
    """Say that a job keeps its place, and the commands that come back to it and cancel it."""
    say(f"{job_id} keeps its place. Come back: gpu-dev shell {job_id}   Cancel it: gpu-dev cancel {job_id}")


def submit_session(
    client: GpuDevClient, request: JobSubmit, interrupted: Callable[[str], None] = say_how_to_go_on
) -> Job:
    """Submit a job. Ctrl-C ends the command after `interrupted`, once it is known which job the server has."""
    key = str(uuid.uuid4())
    try:
        return client.submit(request, idempotency_key=key)
    except KeyboardInterrupt:
        interrupted(client.submit(request, idempotency_key=key).id)
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def say_home(client: GpuDevClient, request: JobSubmit, job: Job) -> None:
    """Say where a session has its owner's disk `home`, or why it has not."""
    if request.workload.command or request.no_home is True:
        return
    spec = client.job_spec(job.id)
    uses = [DiskUse(disk.name, disk.path, disk.read_only) for disk in spec.disks]
    for use in uses:
        if use.name == HOME:
            say(f"The session has your disk {HOME} at ${DISKS_VARIABLE}{use.path}. Without it: --no-home")
            return
    fault = fault_of_home(uses, [secret.path for secret in spec.secrets if secret.path is not None])
    if fault is not None and any(disk.name == HOME for disk in client.disks.disks()):
        say(f"The session is without your disk {HOME}, because {fault}.")


def wait_for_start(client: GpuDevClient, job: Job, interrupted: Callable[[str], None] = say_how_to_go_on) -> Job:
    """Wait until a job runs.

    Ctrl-C asks nothing, and ends the command after `interrupted`: by default the job keeps its place. Raises
    ClientError for a job that has ended.
    """
    if job.status is JobStatus.RUNNING:
        return job
    try:
        with StatusLine() as line:
            job = wait_until(client, job, has_started, describe=_line, tell=line.show)
    except KeyboardInterrupt:
        interrupted(job.id)
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    if job.status is not JobStatus.RUNNING:
        raise ClientError(f"{job.id} can't be entered: {waiting_line(job)}", next_command=f"gpu-dev explain {job.id}")
    return job


def _line(job: Job) -> str:
    """The state of a job that may still start; nothing of another, which the error after it says."""
    if job.status not in (JobStatus.QUEUED, JobStatus.STARTING, JobStatus.RUNNING):
        return ""
    promised = job.promised_start_at if job.status is JobStatus.QUEUED else None
    if promised is not None and promise_stands(promised, job.estimated_start_at):
        return f"promised start {minute(promised)}, {waiting_line(job)}"
    return waiting_line(job)

"""How entering a job ends: the program's exit code as this program's, and what becomes of the job."""

from collections.abc import Callable

import typer

from gpu_dev.client import GpuDevClient
from gpu_dev.display.local_times import local_time
from gpu_dev.errors import ClientError, ExitCode, UnreachableError
from gpu_dev.following import waiting_line
from gpu_dev.sessions.conversation import LeftError, SignalledError
from gpu_dev.sessions.remote_program import BrokenOffError
from gpu_dev.terminal import say
from gpu_dev.wire.jobs import Job
from reservation_core.domain.statuses import JobStatus

_SIGNAL = 128
_MAX_CODE = 255


def exit_code_after(
    client: GpuDevClient, converse: Callable[[], int], job_id: str, come_back: str, *, is_shell: bool = False
) -> int:
    """Call `converse`, which talks with programs in a job, and return the exit code for how it ended.

    After a shell it says what becomes of the job, after other programs only whether the job has ended.
    Raises typer.Exit where somebody or a signal left them, and UnreachableError, with the command that comes back,
    where the connection broke and the job goes on.
    """
    try:
        code = min(max(converse(), 0), _MAX_CODE)
    except LeftError:
        _say_if_known(client, job_id, come_back)
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except SignalledError as signalled:
        raise typer.Exit(_SIGNAL + signalled.number) from None
    except BrokenOffError as error:
        job = _job_if_known(client, job_id)
        if job is None or job.status is JobStatus.RUNNING:
            if error.is_lost:
                raise UnreachableError(str(error), next_command=f"gpu-dev shell {job_id}") from error
            detail = f"The connection to {job_id} broke: {error}"
            raise UnreachableError(detail, next_command=come_back) from error
        _say_what_goes_on(job, come_back)
        return ExitCode.TIMEOUT if job.status is JobStatus.EXPIRED else ExitCode.JOB_FAILED
    if is_shell:
        _say_if_known(client, job_id, f"gpu-dev shell {job_id}")
    return code


def _job_if_known(client: GpuDevClient, job_id: str) -> Job | None:
    try:
        return client.job(job_id)
    except ClientError:
        return None


def _say_if_known(client: GpuDevClient, job_id: str, come_back: str) -> None:
    job = _job_if_known(client, job_id)
    if job is not None:
        _say_what_goes_on(job, come_back)


def _say_what_goes_on(job: Job, come_back: str) -> None:
    """Say until when a job goes on, and the commands that come back and end it; or how it ended."""
    match job.status:
        case JobStatus.QUEUED | JobStatus.STARTING | JobStatus.RUNNING:
            until = f" until {local_time(job.ends_at)}" if job.ends_at else ""
            say(f"{job.id} goes on{until}. Come back: {come_back}   End it: gpu-dev cancel {job.id}")
        case JobStatus.ENDING | JobStatus.SUCCEEDED | JobStatus.FAILED | JobStatus.CANCELLED | JobStatus.EXPIRED:
            say(f"{job.id}: {waiting_line(job)}")

"""How entering a job ends: the program's exit code as this program's, and what becomes of the job."""

from collections.abc import Coroutine
from typing import Any

from gpu_dev.client import GpuDevClient
from gpu_dev.display.local_times import local_time
from gpu_dev.errors import ExitCode, UnexpectedAnswerError, UnreachableError
from gpu_dev.following import waiting_line
from gpu_dev.sessions.conversation import LeftError, SignalledError
from gpu_dev.sessions.descriptors import run_polling
from gpu_dev.sessions.program_wire import ProgramEnd
from gpu_dev.sessions.remote_program import BrokenOffError
from gpu_dev.terminal import say
from reservation_core.domain.model import JobStatus

_SIGNAL = 128
_MAX_CODE = 255


def exit_code_after(conversation: Coroutine[Any, Any, ProgramEnd], job_id: str, come_back: str) -> int:
    """Run a conversation with a program in a job, and return the exit code for how it ended.

    Raises UnreachableError, with the command that comes back, where the connection broke, and UnexpectedAnswerError
    where nobody knows how the program ended.
    """
    try:
        end = run_polling(conversation)
    except LeftError:
        return ExitCode.INTERRUPTED
    except SignalledError as signalled:
        return _SIGNAL + signalled.number
    except BrokenOffError as error:
        raise UnreachableError(f"The connection to {job_id} broke: {error}", next_command=come_back) from error
    if end.exit_code is None:
        raise UnexpectedAnswerError(f"It is not known how the program ended: {end.detail}")
    return min(max(end.exit_code, 0), _MAX_CODE)


def say_what_goes_on(client: GpuDevClient, job_id: str) -> None:
    """Say until when a job goes on, and the commands that come back and end it; or how it ended."""
    job = client.job(job_id)
    match job.status:
        case JobStatus.QUEUED | JobStatus.STARTING | JobStatus.RUNNING:
            until = f" until {local_time(job.ends_at)}" if job.ends_at else ""
            say(f"{job.id} goes on{until}. Come back: gpu-dev shell {job.id}   End it: gpu-dev cancel {job.id}")
        case JobStatus.ENDING | JobStatus.SUCCEEDED | JobStatus.FAILED | JobStatus.CANCELLED | JobStatus.EXPIRED:
            say(f"{job.id}: {waiting_line(job)}")

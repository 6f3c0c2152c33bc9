"""Follow a job: on stderr why it waits, until it starts; then its exit code."""

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import assert_never

from msgspec.structs import replace

from gpu_dev.client import GpuDevClient
from gpu_dev.display.expected_starts import start_words
from gpu_dev.display.local_times import local_sentence, local_time
from gpu_dev.display.output import Format
from gpu_dev.display.use_graphs import use_line
from gpu_dev.display.views import placed
from gpu_dev.errors import ClientError, ExitCode, WaitTimeoutError
from gpu_dev.terminal import Rendered, say
from gpu_dev.wire.jobs import Job, QueueEntry
from reservation_core.domain.status_words import queue_words
from reservation_core.domain.statuses import FINAL_STATUSES, JobStatus, ReasonCode

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0
_MAX_CODE = 255
_PLACES = "\nPLACE counts the jobs of one queue: each type of GPU has its own, and so has each booking.\n"


def place_note(jobs: Sequence[Job] | Sequence[QueueEntry], output: Format) -> Rendered:
    """A line to go below the table, where two jobs have the same place; else, and below data, nothing."""
    places = [job.queue_position for job in jobs if job.queue_position is not None]
    people = output in (Format.TABLE, Format.WIDE)
    return Rendered(_PLACES if people and len(set(places)) < len(places) else "")


def waiting_line(job: Job) -> str:
    """The present state of a job in one line."""
    match job.status:
        case JobStatus.QUEUED | JobStatus.RUNNING if job.array is not None:
            return f"{job.status.value} ({job.reason.code.value}: {local_sentence(job.reason.detail)})"
        case JobStatus.QUEUED:
            if job.reason.code is ReasonCode.WAITING_FOR_JOBS:
                parts = ["waiting for other jobs"]
            elif job.queue_position is None:
                parts = ["waiting for its place"]
            else:
                parts = [
                    "waiting",
                    f"place {job.queue_position} in {queue_words(job.gpu_type, job.booking_id, job.gpus)}",
                ]
            if start := start_words(job):
                parts.append(f"starts about {start}")
            return f"{', '.join(parts)}{_reason(job)}"
        case JobStatus.STARTING:
            return f"starting on {placed(job.allocations) or ('its GPUs' if job.gpus else 'its node')}"
        case JobStatus.RUNNING:
            return f"running on {placed(job.allocations)} until {local_time(job.ends_at)} at the latest"
        case JobStatus.ENDING:
            return f"ending{_reason(job)}"
        case JobStatus.SUCCEEDED | JobStatus.FAILED | JobStatus.CANCELLED | JobStatus.EXPIRED:
            code = "" if job.exit_code is None else f", exit code {job.exit_code}"
            return f"{job.status.value}{_reason(job)}{code}"
        case _:
            assert_never(job.status)


def _reason(job: Job) -> str:
    return f" ({job.reason.code.value}: {local_sentence(job.reason.detail)})"


def exit_code_of(job: Job) -> int:
    """The exit code for an ended job: its own if it has one (128 + n after signal n)."""
    match job.status:
        case JobStatus.SUCCEEDED:
            return ExitCode.OK
        case JobStatus.EXPIRED:
            return ExitCode.TIMEOUT
        case JobStatus.FAILED:
            code = job.exit_code
            if code is None or code == 0:
                return ExitCode.JOB_FAILED
            return 128 - code if -_MAX_CODE <= code < 0 else min(code, _MAX_CODE)
        case JobStatus.CANCELLED:
            return ExitCode.JOB_FAILED
        case JobStatus.QUEUED | JobStatus.STARTING | JobStatus.RUNNING | JobStatus.ENDING:
            raise ValueError(f"{job.id} has not ended; wait for it before asking how it ended")
        case _:
            assert_never(job.status)


def wait_until(
    client: GpuDevClient,
    job: Job,
    done: Callable[[Job], bool],
    *,
    timeout: timedelta | None = None,
    told: str = "",
    describe: Callable[[Job], str] = waiting_line,
    tell: Callable[[str], None] = say,
) -> Job:
    """Poll a job until `done`, and `tell` changes of its state, by default on stderr; returns the job then.

    A predicted start drifts all the time: a change of that alone is not told, nor a state that `describe` passes over
    with an empty text. `told` is the state that was told last.
    Raises WaitTimeoutError after `timeout`; the job goes on.
    """
    limit = None if timeout is None else time.monotonic() + timeout.total_seconds()
    pause = _FIRST_PAUSE_S
    steady = None
    while True:
        line, before = describe(job), steady
        steady = describe(replace(job, estimated_start=None))
        if line != told and job.status in FINAL_STATUSES and (reason := _reason(job)) in told:
            line = line.replace(reason, "")  # `ending` told it
        if line and line != told and steady != before:
            tell(f"{job.id}: {line}")
            told, pause = line, _FIRST_PAUSE_S
        if done(job):
            return job
        left = pause if limit is None else limit - time.monotonic()
        if left <= 0:
            raise WaitTimeoutError(f"{job.id} is still {job.status.value}.", next_command=f"gpu-dev show {job.id}")
        client.pause(min(pause, left))
        pause = min(pause * 1.5, _LONGEST_PAUSE_S)
        job = client.job(job.id)


def has_started(job: Job) -> bool:
    """Whether a job's pods run or ran, so that there may be output."""
    return job.status not in (JobStatus.QUEUED, JobStatus.STARTING)


def has_output(job: Job) -> bool:
    """Whether a job that left the queue may have printed something: else its log only repeats why it did not start."""
    return job.started_at is not None or (job.retries is not None and job.retries.done > 0)


def has_ended(job: Job) -> bool:
    """Whether a job is in a final state."""
    return job.status in FINAL_STATUSES


def say_use(client: GpuDevClient, job: Job) -> None:
    """Say on stderr what an ended job used of its GPUs, where samples tell; nothing without any."""
    if job.started_at is None or job.gpus == 0:
        return
    try:
        use = client.use.of_job(job.id).summary
    except ClientError:
        return  # the job's own result counts
    if use is not None:
        say(f"{job.id} {use_line(use)}")

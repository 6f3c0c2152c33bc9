"""`logs` and `events`."""

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from gpu_dev.client import GpuDevClient
from gpu_dev.display.output import Format, as_data, as_json, show_list, show_one
from gpu_dev.display.views import EVENT
from gpu_dev.errors import UsageError
from gpu_dev.following import has_ended, has_started, say_use, wait_until, waiting_line
from gpu_dev.options import JobId, Output
from gpu_dev.server.streams import ResumableLog
from gpu_dev.session import client_for, whole_id
from gpu_dev.terminal import ProgramOutput, Rendered, put, say
from gpu_dev.wire.jobs import Job
from reservation_core.domain.statuses import JobStatus

logs_app = typer.Typer(add_completion=False)
events_app = typer.Typer(add_completion=False)

Follow = Annotated[bool, typer.Option("--follow", "-f", help="Follow until the job has ended.")]


@logs_app.command()
def logs(
    ctx: typer.Context,
    job_id: JobId,
    follow: Follow = False,
    timestamps: Annotated[
        bool,
        typer.Option("--timestamps", help="Begin each line with the time when it was printed (UTC), or - if unknown."),
    ] = False,
    attempt: Annotated[
        int | None, typer.Option(min=1, help="The output of this attempt (default: the newest one).")
    ] = None,
    tail: Annotated[
        int | None,
        typer.Option("--tail", "-n", min=0, help="Only the last lines, this many (default: all)."),
    ] = None,
) -> None:
    """Print a job's output. Lines of a job on several nodes begin with their rank in brackets, those of an array with
    the index of their element. `NAME.3` is element 3 alone."""
    if follow and attempt is not None:
        raise UsageError("--follow goes from one attempt to the next. Leave --attempt out, or --follow.")
    with client_for(ctx) as client:
        job = client.job(whole_id(client, job_id))
        if job.status is JobStatus.QUEUED:
            say(f"{job.id}: {waiting_line(job)}")
        if follow:
            chunks = _followed(client, job, timestamps=timestamps, tail=tail)
        else:
            chunks = client.log(job.id, timestamps=timestamps, attempt=attempt)
            chunks = chunks if tail is None else last_lines(chunks, tail)
        # To a file or a pipe it goes as it is; a terminal obeys what is in it, whoever's job it was.
        shown = ProgramOutput() if sys.stdout.isatty() else None
        printed = False
        for chunk in chunks:
            printed = printed or bool(chunk)
            sys.stdout.buffer.write(chunk if shown is None else shown.take(chunk))
            sys.stdout.buffer.flush()
        if shown is not None:
            sys.stdout.buffer.write(shown.rest())
            sys.stdout.buffer.flush()
        if not printed and not follow and job.started_at is None and job.attempt < 2 and has_ended(job):
            say(f"{job.id} has no output: it never started. Why: gpu-dev explain {job.id}")
        elif not printed and not follow and job.status is not JobStatus.QUEUED and tail != 0:
            say(_of_no_output(client, job))
        if follow and has_ended(job := client.job(job.id)):
            say_use(client, job)


def _of_no_output(client: GpuDevClient, job: Job) -> str:
    if has_ended(job):
        return f"{job.id} printed nothing."
    if job.user == client.me().name and not client.job_spec(job.id).workload.command:
        return f"{job.id} is a session, and prints nothing by itself. Enter it: gpu-dev shell {job.id}"
    return f"{job.id} has printed nothing yet."


def _followed(client: GpuDevClient, job: Job, *, timestamps: bool, tail: int | None) -> Iterator[bytes]:
    """A job's output until it has ended; with `tail` only that many lines of what it has printed so far."""
    if (job.retries or job.preemption) is not None and job.attempt == 0 and job.array is None:
        job = wait_until(client, job, has_started)
        job.attempt = min(job.attempt, 1)  # it may have been retried meanwhile
    log = ResumableLog(job.nodes if job.array is None else max(2, job.array.size), job.attempt)
    if tail is not None:
        yield from last_lines(
            map(log.feed, client.log(job.id, timestamps=timestamps, attempt=job.attempt or None)), tail
        )
    yield from client.follow_log(job.id, log, timestamps=timestamps)


def last_lines(chunks: Iterable[bytes], count: int) -> Iterator[bytes]:
    """The last lines of an output that comes in chunks; no more than these are kept meanwhile."""
    lines: deque[bytes] = deque(maxlen=count)
    rest: list[bytes] = []  # of a progress bar, which ends no line, there may be all of the output
    for chunk in chunks:
        *whole, last = chunk.split(b"\n")
        if whole:
            whole[0] = b"".join((*rest, whole[0]))
            lines.extend(line + b"\n" for line in whole)
            rest.clear()
        rest.append(last)
    if any(rest):
        lines.append(b"".join(rest))
    return iter(lines)


@events_app.command()
def events(
    ctx: typer.Context,
    job_id: JobId,
    follow: Follow = False,
    after: Annotated[int, typer.Option(min=0, help="Only events later than this one.")] = 0,
    output: Output = Format.TABLE,
) -> None:
    """Print what happened to a job: who, what, and why. With --follow, JSON is one object a line."""
    with client_for(ctx) as client:
        whole = whole_id(client, job_id)
        if not follow:
            put(show_list(list(client.events(whole, after=after)), EVENT, output))
            return
        for event in client.follow_events(whole, after=after):
            match output:
                case Format.JSON:
                    put(as_json(as_data(event)))
                case Format.YAML:
                    put("---\n")
                    put(show_one(event, EVENT, output))
                case Format.TABLE | Format.WIDE | Format.NAME:
                    row = show_list([event], EVENT, output)
                    put(row if output is Format.NAME else Rendered(row.partition("\n")[2]))

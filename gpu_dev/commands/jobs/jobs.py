"""`list`, `show`, `extend`, `keep`, `cancel`."""

from itertools import islice
from typing import Annotated

import typer

from gpu_dev.client import GpuDevClient
from gpu_dev.commands.jobs.empty_lists import listed_jobs
from gpu_dev.display.local_times import local_sentence, local_time
from gpu_dev.display.output import Format, View, show_list, show_one, with_facts
from gpu_dev.display.views import JOB, JOB_DETAILS
from gpu_dev.errors import ApiError, ClientError, UsageError
from gpu_dev.following import has_ended, place_note, waiting_line
from gpu_dev.inputs.asking import confirmed
from gpu_dev.inputs.durations import format_duration, parse_duration
from gpu_dev.options import JobId, JobIds, Output, OwnJobId, Watch, Yes
from gpu_dev.server.exchange import Exchange
from gpu_dev.session import client_for, own_job, whole_id
from gpu_dev.terminal import Rendered, put, say
from gpu_dev.watching import watch
from gpu_dev.wire.jobs import Job, JobSpec
from reservation_core.domain.jobs.workload_words import workload_words
from reservation_core.domain.policy.rule_words import counted
from reservation_core.domain.statuses import FINAL_STATUSES, JobStatus

list_app = typer.Typer(add_completion=False)
show_app = typer.Typer(add_completion=False)
extend_app = typer.Typer(add_completion=False)
keep_app = typer.Typer(add_completion=False)
cancel_app = typer.Typer(add_completion=False)

_OPEN = frozenset(JobStatus) - FINAL_STATUSES


@list_app.command()
def list_jobs(
    ctx: typer.Context,
    status: Annotated[list[JobStatus] | None, typer.Option(help="Only jobs in this status (may be repeated).")] = None,
    all_: Annotated[bool, typer.Option("--all", "-a", help="Ended jobs too.")] = False,
    shared: Annotated[bool, typer.Option("--shared", help="Others' jobs that are shared with you instead.")] = False,
    user: Annotated[
        str | None, typer.Option(help="Only this user's jobs (for administrators, or with --shared).")
    ] = None,
    array: Annotated[
        str | None,
        typer.Option("--elements", metavar="ID", help="The elements of this array, in their order, instead."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Show at most this many, the newest.")] = 200,
    output: Output = Format.TABLE,
    again: Watch = False,
) -> None:
    """List the jobs that wait or run, newest first; administrators see those of all users."""
    if array is not None and (shared or user is not None):
        raise UsageError("--elements lists one array. Leave --shared and --user out.")
    wanted = frozenset(status) if status else (frozenset() if all_ or array is not None else _OPEN)
    with client_for(ctx) as client:
        array_id = None if array is None else whole_id(client, array)

        def render() -> tuple[str, bool]:
            found = client.jobs(wanted, user=user, shared=shared)
            if array_id is not None:
                found = client.elements(array_id, wanted)
            jobs = list(islice(found, limit + 1))
            if len(jobs) > limit:
                which = "first" if array_id is not None else "last shared" if shared else "newest"
                say(f"Only the {which} {limit} are shown; more with --limit.")
            is_seen = not jobs and user is not None and not shared and _is_seen(client, user)
            view = listed_jobs(status or (), all_=all_, user=user, shared=shared, array_id=array_id, is_seen=is_seen)
            text = show_list(jobs[:limit], view, output)
            return Rendered(text + place_note(jobs[:limit], output)), False

        watch(client, render, again=again)


def _is_seen(client: GpuDevClient, user: str) -> bool:
    """Whether all jobs of a user are seen with this token: they are one's own, or it is an administrator's."""
    if client.me().name == user:
        return True
    try:
        next(client.users(), None)
    except ApiError:
        return False
    return True


@show_app.command()
def show(ctx: typer.Context, job_id: JobId, output: Output = Format.TABLE, again: Watch = False) -> None:
    """Show one job; with --watch until it has ended."""
    with client_for(ctx) as client:
        whole = whole_id(client, job_id)
        for_people = output in (Format.TABLE, Format.WIDE)
        details = _details_with(client.job_spec(whole)) if for_people else JOB_DETAILS

        def render() -> tuple[str, bool]:
            job = client.job(whole)
            return show_one(job, details, output), has_ended(job)

        watch(client, render, again=again)


def _details_with(spec: JobSpec) -> View[Job]:
    """The details of a job, with what it runs and the disks and secrets of its request."""
    disks = ", ".join(f"{disk.name} at {disk.path}{' (read-only)' if disk.read_only else ''}" for disk in spec.disks)
    secrets = ", ".join(f"{secret.name} in {secret.path or f'${secret.env}'}" for secret in spec.secrets)
    return with_facts(JOB_DETAILS, (*workload_words(spec.workload), ("Disks", disks), ("Secrets", secrets)))


@extend_app.command()
def extend(
    ctx: typer.Context,
    by: Annotated[str, typer.Option(help="How much longer, such as 1h or 90m.")],
    job_id: OwnJobId = None,
    output: Annotated[Format | None, typer.Option("--output", "-o", help="Output format.")] = None,
) -> None:
    """Give a job more time. Inside a job, the id may be left out."""
    longer = parse_duration(by)
    inside = own_job(ctx, job_id)
    if inside is not None:
        own, connection = inside
        with GpuDevClient(Exchange(connection)) as client:
            job = client.extend(own, longer)
    elif job_id is None:
        raise UsageError("Which job? Name it: `gpu-dev extend ID --by 1h`. `gpu-dev list` shows your jobs.")
    else:
        with client_for(ctx) as client:
            job = client.extend(whole_id(client, job_id), longer)
    if output is not None:
        put(show_one(job, JOB_DETAILS, output))
        return
    end = f", until {local_time(job.ends_at)} at the latest" if job.ends_at else ""
    put(f"{job.id} now lasts {format_duration(job.duration)}{end}\n")


@keep_app.command()
def keep(
    ctx: typer.Context,
    job_id: JobId,
    output: Annotated[Format | None, typer.Option("--output", "-o", help="Output format.")] = None,
) -> None:
    """Keep a job that was warned because its GPUs are idle. It is warned again if they stay idle."""
    with client_for(ctx) as client:
        job = client.keep(whole_id(client, job_id))
    put(f"{job.id} keeps its GPUs\n" if output is None else show_one(job, JOB_DETAILS, output))


def _all_own(client: GpuDevClient, *, yes: bool) -> list[str]:
    """The ids of the user's own jobs that can be cancelled, once the user confirms.

    Those that wait come first: none of them starts as others end.
    """
    jobs = list(client.jobs(_OPEN - {JobStatus.ENDING}, user=client.me().name))
    jobs.sort(key=lambda job: job.status is not JobStatus.QUEUED)
    if jobs:
        named = ", ".join(f"{job.name} ({job.id})" if job.name else job.id for job in jobs)
        confirmed(f"Cancel {counted(len(jobs), 'job')}: {named}? Running jobs end.", yes=yes)
    return [job.id for job in jobs]


@cancel_app.command()
def cancel(
    ctx: typer.Context,
    job_ids: JobIds = None,
    all_: Annotated[bool, typer.Option("--all", "-a", help="All of your jobs that wait or run.")] = False,
    yes: Yes = False,
    output: Annotated[Format | None, typer.Option("--output", "-o", help="Output format.")] = None,
) -> None:
    """End running jobs, or take waiting jobs out of the queue. With --all it lists them, and asks first.

    It tries all of them, even if some fail; the exit code is that of the first error.
    """
    if all_ == bool(job_ids):
        raise UsageError("Name jobs, or give --all for all of yours.", next_command="gpu-dev list")
    first: ClientError | None = None
    with client_for(ctx) as client:
        job_ids = job_ids or _all_own(client, yes=yes)
        if not job_ids:
            say("None of your jobs waits or runs.")
        cancelled = []
        for wanted in job_ids:
            try:
                job = client.cancel(whole_id(client, wanted))
            except ClientError as error:
                if len(job_ids) > 1:
                    detail = local_sentence(error.detail) if isinstance(error, ApiError) else error.detail
                    say(f"{wanted}: not cancelled: {detail}")
                first = first or error
                continue
            cancelled.append(job)
            if output is None:
                put(f"{job.id}: {waiting_line(job)}\n")
    if output is not None:
        put(show_list(cancelled, JOB, output))
    if first is not None and len(job_ids) > 1:
        raise typer.Exit(first.exit_code)  # it was said
    if first is not None:
        raise first

"""`explain`: why a job is as it is; or, before there is one, what would become of it, and why."""

import shlex
from datetime import UTC, timedelta
from typing import Annotated, Any

import typer

from gpu_dev.client import GpuDevClient
from gpu_dev.display.explaining import JobExplanation, as_text, explain
from gpu_dev.display.gpu_types import summarise
from gpu_dev.display.output import Column, Format, View, show_one
from gpu_dev.display.verdicts import show_verdict
from gpu_dev.errors import ClientError, UsageError
from gpu_dev.following import has_ended
from gpu_dev.inputs.durations import parse_duration
from gpu_dev.inputs.machine_zone import local_now
from gpu_dev.inputs.requests import make_request
from gpu_dev.inputs.slots import start_and_length
from gpu_dev.options import Output, Watch
from gpu_dev.session import client_for, complete_job_id, whole_id
from gpu_dev.terminal import put
from gpu_dev.watching import watch
from gpu_dev.wire.jobs import Job
from gpu_dev.wire.nodes import UseOut
from gpu_dev.wire.policy import ExplainRequest
from reservation_core.domain.short_durations import written
from reservation_core.domain.statuses import JobStatus

app = typer.Typer(add_completion=False)
_LOOKED_AT = timedelta(hours=1)
_EXPLANATION = View[JobExplanation](name=lambda one: one.job.id, columns=(Column("ID", lambda one: one.job.id),))


@app.command("explain")
def explain_it(
    ctx: typer.Context,
    job_id: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="A job's name or id.", autocompletion=complete_job_id),
    ] = None,
    gpus: Annotated[
        int | None, typer.Option("--gpus", "-g", min=0, help="GPUs on each node, for a new request.")
    ] = None,
    gpu_type: Annotated[str | None, typer.Option("--type", "-t", help="The type, such as h100 (default: any).")] = None,
    nodes: Annotated[int | None, typer.Option("--nodes", "-N", min=1, help="Number of nodes (default: 1).")] = None,
    duration: Annotated[str | None, typer.Option("--for", "-d", help="Duration: 4h, 90m, 2d.")] = None,
    start: Annotated[
        str | None, typer.Option("--start", "-s", help='A booking\'s start, or "mon 9-17" (default: a job).')
    ] = None,
    priority: Annotated[int | None, typer.Option("--priority", help="With this priority (default: 0).")] = None,
    project: Annotated[str | None, typer.Option("--project", "-p", help="For this project (default: none).")] = None,
    user: Annotated[str | None, typer.Option("--user", help="For this user (administrators; default: you).")] = None,
    zone: Annotated[
        str | None, typer.Option("--time-zone", "-z", help="The time zone of --start (default: this machine's).")
    ] = None,
    output: Output = Format.TABLE,
    again: Watch = False,
) -> None:
    """Say why a job waits: its place, the reason, the estimated start, what would help.

    Without a job: say whether a request would start now, start later or be refused, and why.
    """
    if job_id is not None:
        if any(given is not None for given in (gpus, gpu_type, nodes, duration, start, priority, project, user, zone)):
            raise UsageError(
                "Give either a job, or the options of a new request.",
                next_command=f"gpu-dev explain {shlex.quote(job_id)}",
            )
        _explain_job(ctx, job_id, output, again=again)
        return
    if gpus is None or (duration is None and start is None):
        missing = "Name a job, or give --gpus and --for" if gpus is None else "Give --for, too,"
        raise UsageError(
            f"{missing} for a new request.", next_command=f"gpu-dev explain --gpus {gpus or 4} --type h100 --for 8h"
        )
    fields: dict[str, Any] = {
        "gpus": gpus,
        "gpu_type": None if gpu_type is None else gpu_type.lower(),
        "nodes": nodes,
        "duration": None if duration is None else parse_duration(duration),
        "priority": priority,
        "project": project,
        "user": user,
    }
    if start is not None:
        fields |= start_and_length(start, duration, zone)
    asked = make_request(ExplainRequest, {key: value for key, value in fields.items() if value is not None})
    with client_for(ctx) as client:
        verdict = client.policy.explain(asked)
    typed = [f"--gpus {gpus}", f"--for {written(fields['duration'])}"]
    typed += [] if gpu_type is None else [f"--type {shlex.quote(gpu_type)}"]
    typed += [] if nodes is None else [f"--nodes {nodes}"]
    put(show_verdict(verdict, output, " ".join(["gpu-dev book slots", *typed])))


def _use_of(client: GpuDevClient, job: Job) -> UseOut | None:
    """How a running job without a warning uses its GPUs; None where nothing is known."""
    if job.status is not JobStatus.RUNNING or job.idle is not None or job.array is not None:
        return None
    try:
        # In such steps no work hides behind a mean, nor a silence behind samples.
        begun = max(job.started_at or job.created_at, local_now() - _LOOKED_AT)
        return client.use.of_job(job.id, since=begun.astimezone(UTC).isoformat(), step=timedelta(minutes=1))
    except ClientError:
        return None


def _explain_job(ctx: typer.Context, job_id: str, output: Format, *, again: bool) -> None:
    with client_for(ctx) as client:
        whole = whole_id(client, job_id)

        def render() -> tuple[str, bool]:
            job = client.job(whole)
            said = explain(job, summarise(client.gpus(), client.nodes()), _use_of(client, job))
            people = output in (Format.TABLE, Format.WIDE)
            return as_text(said) if people else show_one(said, _EXPLANATION, output), has_ended(job)

        watch(client, render, again=again)

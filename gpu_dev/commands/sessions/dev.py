"""`dev` and its alias `reserve`: ask for GPUs, wait for them, and be in a shell on them."""

import uuid

import typer

from gpu_dev.client import GpuDevClient
from gpu_dev.commands.jobs.run import Booking, Env, For, Gpus, GpuType, Image, Name, Priority, Project, WorkingDir
from gpu_dev.commands.sessions.shell import enter_shell
from gpu_dev.errors import ExitCode
from gpu_dev.inputs.asking import needed_duration, needed_gpus
from gpu_dev.inputs.requests import checked, job_fields
from gpu_dev.session import booking_id_of, client_for
from gpu_dev.sessions.waiting import say_how_to_go_on, wait_for_start
from reservation_core.contracts.jobs import Job, JobSubmit

app = typer.Typer(add_completion=False)

_EXAMPLE = "gpu-dev dev --gpus 2 --for 4h"


@app.command()
def dev(
    ctx: typer.Context,
    gpus: Gpus = None,
    duration: For = None,
    gpu_type: GpuType = None,
    image: Image = None,
    name: Name = None,
    env: Env = None,
    working_dir: WorkingDir = None,
    priority: Priority = None,
    booking: Booking = None,
    project: Project = None,
) -> None:
    """Get GPUs for a session, wait for them, and open a shell on them.

    Ctrl-C while waiting asks nothing: the session keeps its place in the queue, and its id is shown.

    The session goes on when the shell ends, until its time is over or `gpu-dev cancel ID`.
    """
    fields = job_fields(None, gpu_type, None, name, env, image, working_dir, priority, booking, project)
    with client_for(ctx) as client:
        if booking is not None:
            fields["booking_id"] = booking_id_of(client, booking)
        asked = {"gpus": needed_gpus(gpus, _EXAMPLE), "duration": needed_duration(duration, _EXAMPLE)}
        job = wait_for_start(client, submit_session(client, checked(JobSubmit, {**fields, **asked})))
        code = enter_shell(client, job.id)
    raise typer.Exit(code)


def submit_session(client: GpuDevClient, request: JobSubmit) -> Job:
    """Submit a session. Ctrl-C ends the command once it is known whether the server has it."""
    key = str(uuid.uuid4())
    try:
        return client.submit(request, idempotency_key=key)
    except KeyboardInterrupt:
        say_how_to_go_on(client.submit(request, idempotency_key=key).id)
        raise typer.Exit(ExitCode.INTERRUPTED) from None

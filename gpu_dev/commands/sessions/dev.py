"""`dev` and its alias `reserve`: ask for GPUs, wait for them, and be in a shell on them."""

from typing import Annotated

import typer

from gpu_dev.commands.jobs.job_options import (
    Booking,
    Cpus,
    Disk,
    DryRun,
    Env,
    Fetch,
    For,
    Gpus,
    GpuType,
    Image,
    Inactivity,
    Memory,
    Name,
    Nodes,
    NoHome,
    Priority,
    Project,
    Secret,
    Shm,
    Sync,
    WorkingDir,
)
from gpu_dev.commands.jobs.rehearsals import rehearse
from gpu_dev.commands.sessions.ssh import write_config
from gpu_dev.display.output import Format
from gpu_dev.inputs.asking import needed_duration, needed_gpus
from gpu_dev.inputs.requests import job_fields, make_request
from gpu_dev.inputs.synced_folders import read_synced
from gpu_dev.session import booking_id_of, client_for
from gpu_dev.sessions.editors import Ide, open_editor
from gpu_dev.sessions.waiting import say_home, submit_session, wait_for_start
from gpu_dev.wire.jobs import JobSubmit

app = typer.Typer(add_completion=False)

_EXAMPLE = "gpu-dev dev --gpus 2 --for 4h"


@app.command()
def dev(
    ctx: typer.Context,
    gpus: Gpus = None,
    duration: For = None,
    gpu_type: GpuType = None,
    nodes: Nodes = None,
    image: Image = None,
    name: Name = None,
    env: Env = None,
    secret: Secret = None,
    disk: Disk = None,
    no_home: NoHome = False,
    working_dir: WorkingDir = None,
    priority: Priority = None,
    booking: Booking = None,
    project: Project = None,
    inactivity: Inactivity = None,
    cpus: Cpus = None,
    memory: Memory = None,
    shm: Shm = None,
    sync: Sync = None,
    fetch: Fetch = None,
    ide: Annotated[
        Ide | None,
        typer.Option(help="Also open an editor on the session, or run JupyterLab in it instead of a shell."),
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Get GPUs for a session, wait for them, and open a shell on them.

    Ctrl-C while it waits cancels nothing: the session keeps its place in the queue, and its id is shown.

    --ide vscode and cursor open a window of the editor over SSH, and run `gpu-dev config-ssh` for that. --ide jupyter
    needs JupyterLab in the image.

    The session goes on when the shell ends, until its time is over or `gpu-dev cancel ID`. After its end `gpu-dev
    fetch ID` brings back what --fetch names.
    """
    from gpu_dev.sessions.entering import enter_shell
    from gpu_dev.sessions.notebooks import enter_notebook

    fields = job_fields(
        None, gpu_type, nodes, name, env, image, working_dir, priority, booking, project, inactivity, secret,
        cpus=cpus, memory=memory, shm=shm, disks=disk, no_home=no_home,
    )  # fmt: skip
    files = read_synced(sync, fetch)
    with client_for(ctx) as client:
        if booking is not None:
            fields["booking_id"] = booking_id_of(client, booking)
        asked = {"gpus": needed_gpus(gpus, _EXAMPLE), "duration": needed_duration(duration, _EXAMPLE)}
        request = make_request(JobSubmit, {**fields, **asked})
        if dry_run:
            rehearse(client, request, Format.TABLE)
        submitted = submit_session(client, files.sent_with(client, request))
        say_home(client, request, submitted)
        job = wait_for_start(client, submitted)
        if ide is Ide.JUPYTER:
            code = enter_notebook(client, job.id)
        else:
            if ide is not None:
                write_config(ctx)
                open_editor(ide, job.id)
            code = enter_shell(client, job.id)
    raise typer.Exit(code)

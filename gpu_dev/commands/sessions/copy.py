"""`cp`."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from gpu_dev.session import client_for, whole_id
from gpu_dev.sessions.files.job_paths import read_paths

app = typer.Typer(add_completion=False)


@app.command()
def cp(
    ctx: typer.Context,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A file or folder: here, or `ID:PATH` in a job.")],
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="Where to; a folder that exists is copied into, as with `cp -r`.")
    ],
    rank: Annotated[int, typer.Option(min=0, help="The node of a job on several nodes, counted from 0.")] = 0,
    recursive: Annotated[
        bool, typer.Option("--recursive", "-r", help="As with cp; folders are copied whole without it, too.")
    ] = False,
) -> None:
    """Copy files and folders into a running job or out of it, with their modes and times.

    A relative path in the job begins at the folder in which its shells start. Links within folders stay links.

    The job's image needs `sh` and `tar`.
    """
    del recursive  # cp and scp need it for folders
    from gpu_dev.sessions.endings import exit_code_after
    from gpu_dev.sessions.files.copying import copy_in, copy_out

    remote, local, into_job = read_paths(source, target)
    with client_for(ctx) as client:
        job_id = whole_id(client, remote.job)
        here = Path(local)
        if into_job:
            copying = partial(copy_in, client.sessions, job_id, here, remote.path, rank=rank)
        else:
            copying = partial(copy_out, client.sessions, job_id, remote.path, here, rank=rank)
        code = exit_code_after(client, copying, job_id, f"gpu-dev show {job_id}")
    raise typer.Exit(code)

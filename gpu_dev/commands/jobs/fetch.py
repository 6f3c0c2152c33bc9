"""`fetch`."""

from pathlib import Path
from typing import Annotated

import typer

from gpu_dev.session import client_for, complete_job_id, whole_id
from gpu_dev.terminal import put

app = typer.Typer(add_completion=False)


@app.command()
def fetch(
    ctx: typer.Context,
    job: Annotated[str, typer.Argument(metavar="ID", help="The job, by id or name.", autocompletion=complete_job_id)],
    to: Annotated[str, typer.Option("--to", metavar="DIR", help="The folder to write into.")] = ".",
) -> None:
    """Bring back the files that a job has kept by `--fetch`. Files of the same names are replaced."""
    from gpu_dev.sync.sending import bring_results, brought

    with client_for(ctx) as client:
        job_id = whole_id(client, job)
        count = bring_results(client.files, job_id, Path(to).resolve())
    put(f"{brought(count, job_id, to)}\n")

"""`forward` and `open`."""

from typing import Annotated

import typer

from gpu_dev.client import GpuDevClient
from gpu_dev.errors import ClientError
from gpu_dev.following import waiting_line
from gpu_dev.options import JobId, Rank
from gpu_dev.session import client_for, whole_id
from gpu_dev.sessions.browsers import open_in_browser
from gpu_dev.terminal import put
from reservation_core.domain.statuses import FINAL_STATUSES, JobStatus

forward_app = typer.Typer(add_completion=False)
open_app = typer.Typer(add_completion=False)

JUPYTER_PORT = 8888


@forward_app.command()
def forward(
    ctx: typer.Context,
    job_id: JobId,
    ports: Annotated[
        list[str],
        typer.Argument(
            metavar="LOCAL:PORT", help="A port here and one in the job; `PORT` is both, `0:PORT` any free port here."
        ),
    ],
    rank: Rank = 0,
) -> None:
    """Reach ports of a running job at 127.0.0.1 until Ctrl-C, and print the local addresses.

    A program in the job has to listen there, at 127.0.0.1 or at all its addresses.
    """
    from gpu_dev.sessions.forwarding import forward_ports, read_forward

    forwards = [read_forward(text, job_id) for text in ports]
    with client_for(ctx) as client:
        whole = running_id(client, job_id)
        forward_ports(client.sessions, whole, forwards, rank)


def running_id(client: GpuDevClient, text: str) -> str:
    """The id of a job that runs. Raises ClientError for any other."""
    job = client.job(whole_id(client, text))
    if job.status in FINAL_STATUSES:
        raise ClientError(f"{job.id} is over ({job.status.value}).", next_command=f"gpu-dev submit --again {job.id}")
    if job.status is not JobStatus.RUNNING:
        raise ClientError(f"{job.id} does not run: {waiting_line(job)}", next_command=f"gpu-dev explain {job.id}")
    return job.id


@open_app.command("open")
def open_app_of_job(
    ctx: typer.Context,
    job_id: JobId,
    port: Annotated[
        int, typer.Argument(metavar="PORT", min=1, max=65_535, help="The port that the application listens at.")
    ] = JUPYTER_PORT,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the browser, too.")] = True,
) -> None:
    """Print the address of a web application that listens in a running job, and open it in the browser.

    The address lets one browser in, once, within a minute. Run the command again for another one.
    """
    with client_for(ctx) as client:
        address = client.sessions.app_address(running_id(client, job_id), port)
    put(f"{address}\n")
    if browser:
        open_in_browser(address)

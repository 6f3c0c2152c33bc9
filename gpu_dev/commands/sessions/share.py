"""`share` and `unshare`."""

from typing import Annotated

import typer

from gpu_dev.options import JobId
from gpu_dev.session import client_for, whole_id
from gpu_dev.terminal import put

share_app = typer.Typer(add_completion=False)
unshare_app = typer.Typer(add_completion=False)

Users = Annotated[list[str], typer.Option("--with", metavar="USER", help="A user (may be repeated).")]


@share_app.command()
def share(ctx: typer.Context, job_id: JobId, users: Users) -> None:
    """Let users enter your job and see its output. They can't end, extend or share it."""
    with client_for(ctx) as client:
        whole = whole_id(client, job_id)
        for user in users:
            client.share(whole, user)
            put(f"{whole} is shared with {user}\n")


@unshare_app.command()
def unshare(ctx: typer.Context, job_id: JobId, users: Users) -> None:
    """End shares of your job. The users' connections to it end within seconds."""
    with client_for(ctx) as client:
        whole = whole_id(client, job_id)
        for user in users:
            client.unshare(whole, user)
            put(f"{whole} is no longer shared with {user}\n")

"""From a command's context to a client for the server it should talk to, and the ids known there."""

import os
from itertools import islice

import typer

from gpu_dev.client import GpuDevClient
from gpu_dev.errors import ClientError
from gpu_dev.inputs.ids import resolve_id
from gpu_dev.server.connection import Connection, normal_server, resolve
from gpu_dev.server.exchange import Exchange
from gpu_dev.server.signing_in import renewal_of
from gpu_dev.terminal import clean

_COMPLETED = 100


def connection_of(ctx: typer.Context) -> Connection:
    """The server and token that the options, the environment and the login file name."""
    given = ctx.find_root().params
    return resolve(given.get("server"), given.get("token_file"), os.environ)


def server_of(ctx: typer.Context, server: str | None) -> str:
    """The server's address in its one form: the one given, or the one that any command would use."""
    return connection_of(ctx).server if server is None else normal_server(server)


def client_for(ctx: typer.Context) -> GpuDevClient:
    """A client for that server, which signs in again where it knows how; use it as a context manager."""
    connection = connection_of(ctx)
    return GpuDevClient(Exchange(connection, renew=renewal_of(connection)))


def whole_id(client: GpuDevClient, text: str) -> str:
    """The id of the one job that `text` (an id, or the beginning of one) stands for."""
    return resolve_id(text, (job.id for job in client.jobs()))


def complete_job_id(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Ids of the newest jobs that begin so, for the shell's completion."""
    try:
        with client_for(ctx) as client:
            newest = [
                (job.id, clean(f"{job.status.value} {job.name or ''}")) for job in islice(client.jobs(), _COMPLETED)
            ]
    except ClientError:
        # A shell that completes has no place for an error; the command itself will tell it.
        return []
    return [one for one in newest if one[0].startswith(incomplete) or one[0].startswith(f"job-{incomplete}")]

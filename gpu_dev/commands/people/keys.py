"""`keys list|add|import|remove`."""

import os
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from gpu_dev.client import GpuDevClient
from gpu_dev.display.local_times import local_time
from gpu_dev.display.output import Column, Format, View, show_list
from gpu_dev.errors import ApiError, ClientError
from gpu_dev.inputs.asking import confirmed
from gpu_dev.inputs.ids import named_id, require_known
from gpu_dev.inputs.public_keys import read_key, read_keys
from gpu_dev.options import Output, Yes
from gpu_dev.session import client_for, own_names
from gpu_dev.terminal import put, say
from gpu_dev.wire.sessions import SshKeyAdd, SshKeyOut

app = typer.Typer(no_args_is_help=True, add_completion=False)
_MOST = 10_000
_KEY: View[SshKeyOut] = View(
    name=lambda key: key.id,
    columns=(
        Column("ID", lambda key: key.id),
        Column("NAME", lambda key: key.name or ""),
        Column("USER", lambda key: key.user),
        Column("TYPE", lambda key: key.type),
        Column("FINGERPRINT", lambda key: key.fingerprint),
        Column("ADDED", lambda key: local_time(key.created_at)),
        Column("LAST USED", lambda key: local_time(key.last_used_at) or "never"),
    ),
    empty="No SSH keys. Add yours: gpu-dev keys add",
)


@app.command("list")
def list_keys(ctx: typer.Context, output: Output = Format.TABLE) -> None:
    """List your SSH keys; administrators see those of all users."""
    with client_for(ctx) as client:
        put(show_list(list(islice(client.keys.keys(), _MOST)), _KEY, output))


@app.command()
def add(
    ctx: typer.Context,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="A public key (default: the first of yours in ~/.ssh).", show_default=False
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Its name (default: its comment).")] = None,
) -> None:
    """Add a public SSH key. With its private half you enter your jobs by SSH."""
    key = read_key(file, Path.home())
    with client_for(ctx) as client:
        known = _known(client)
        put(_said(client.keys.add(_request(key, name)), known))


@app.command("import")
def import_keys(
    ctx: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="`github:NAME`, `gitlab:NAME`, an address, `agent` (what `ssh-add -L` lists), a file, or `-`.",
        ),
    ],
) -> None:
    """Add all public SSH keys of a source.

    It tries all of them, even if some fail; the exit code is that of the first error.
    """
    keys = read_keys(source, os.environ)
    first: ClientError | None = None
    with client_for(ctx) as client:
        known = _known(client)
        for number, key in enumerate(keys, start=1):
            try:
                put(_said(client.keys.add(_request(key, None)), known))
            except ApiError as error:
                say(f"Key {number} of {len(keys)} is not added: {error.detail}")
                first = first or error
    if first is not None:
        raise first


@app.command()
def remove(
    ctx: typer.Context,
    key_ids: Annotated[list[str], typer.Argument(metavar="KEY", help="Ids or names of your keys.")],
    yes: Yes = False,
) -> None:
    """Remove SSH keys: connections that they opened end within seconds. It asks first."""
    with client_for(ctx) as client:
        stored = {key.id: key for key in islice(client.keys.keys(), _MOST)}
        known = list(own_names(client, stored.values()))
        chosen = [named_id(given, "key-", known, "SSH key", "gpu-dev keys list") for given in key_ids]
        if not yes:
            for key_id in chosen:
                require_known(key_id, stored, "SSH key", "gpu-dev keys list")
            keys = ", ".join(stored[key_id].name or key_id for key_id in chosen)
            confirmed(f"Remove {keys}? Connections that they opened end within seconds.", yes=yes)
        for key_id in chosen:
            key = client.keys.remove(key_id)
            put(f"{key.id} removed: {key.name or key.fingerprint}\n")


def _known(client: GpuDevClient) -> frozenset[str]:
    return frozenset(key.id for key in islice(client.keys.keys(), _MOST))


def _request(key: str, name: str | None) -> SshKeyAdd:
    return SshKeyAdd(public_key=key) if name is None else SshKeyAdd(public_key=key, name=name)


def _said(key: SshKeyOut, known: frozenset[str]) -> str:
    done = "was there already" if key.id in known else "added"
    return f"{key.id} {done}: {key.name or key.type} {key.fingerprint}\n"

"""`secret set|list|delete`."""

import sys
from getpass import getpass
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from gpu_dev.display.local_times import local_time
from gpu_dev.display.output import Column, Format, View, show_list
from gpu_dev.errors import UsageError
from gpu_dev.inputs.asking import can_ask, confirmed
from gpu_dev.inputs.ids import require_known
from gpu_dev.options import Output, Yes
from gpu_dev.session import client_for
from gpu_dev.terminal import put
from gpu_dev.wire.people import SecretOut
from reservation_core.domain.sessions.secret_uses import LONGEST_SECRET, is_secret_name

app = typer.Typer(no_args_is_help=True, add_completion=False)
_MOST = 10_000
_SECRET: View[SecretOut] = View(
    name=lambda secret: secret.name,
    columns=(
        Column("NAME", lambda secret: secret.name),
        Column("CREATED", lambda secret: local_time(secret.created_at)),
        Column("UPDATED", lambda secret: local_time(secret.updated_at)),
    ),
    empty="No secrets. Set one: gpu-dev secret set NAME",
)

SecretName = Annotated[str, typer.Argument(metavar="NAME", help="Its name: letters, digits, `.`, `_` and `-`.")]


@app.command("set")
def set_secret(
    ctx: typer.Context,
    name: SecretName,
    from_file: Annotated[
        Path | None, typer.Option("--from-file", metavar="FILE", help="The value is the content of this file.")
    ] = None,
) -> None:
    """Set a secret for your jobs, or replace its value.

    The value is asked for and not shown, or read from stdin (without its last line break) or a file.

    Nobody can read it again: `gpu-dev submit --secret NAME` gives it to a job as a variable.
    """
    if not is_secret_name(name):
        raise UsageError(
            f"{name!r} can't be a secret's name. Use 1 to 63 letters, digits, `.`, `_` and `-`; begin with a letter or"
            " digit."
        )
    value = _value(name, from_file)
    with client_for(ctx) as client:
        secret = client.secrets.put(name, value)
    put(f"{secret.name} is set\n")


@app.command("list")
def list_secrets(ctx: typer.Context, output: Output = Format.TABLE) -> None:
    """List your secrets (never their values)."""
    with client_for(ctx) as client:
        put(show_list(list(islice(client.secrets.secrets(), _MOST)), _SECRET, output))


@app.command()
def delete(
    ctx: typer.Context,
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="Names of your secrets.")],
    yes: Yes = False,
) -> None:
    """Delete secrets. Running jobs keep the value; a job that still waits for its start fails then.

    A value cannot be brought back, so the command asks first.
    """
    with client_for(ctx) as client:
        if not yes:
            known = [secret.name for secret in islice(client.secrets.secrets(), _MOST)]
            for name in names:
                require_known(name, known, "secret", "gpu-dev secret list")
            lost = "Nobody can bring a value back, and waiting jobs that use it fail at their start."
            confirmed(f"Delete {', '.join(names)}? {lost}", yes=yes)
        for name in names:
            put(f"{client.secrets.delete(name).name} is deleted\n")


def _value(name: str, from_file: Path | None) -> str:
    """The value of a secret. Raises UsageError, which never quotes it."""
    if from_file is not None:
        try:
            content = from_file.read_bytes()
        except OSError as error:
            raise UsageError(f"{from_file} can't be read: {error.strerror}.") from error
    elif can_ask():
        content = getpass(f"Value of {name} (not shown): ", stream=sys.stderr).encode()
    else:
        content = sys.stdin.buffer.read(2 * LONGEST_SECRET).removesuffix(b"\n").removesuffix(b"\r")
    try:
        value = content.decode()
    except UnicodeDecodeError:
        raise UsageError("The value is not UTF-8 text. Encode it first, for instance with base64.") from None
    if not value:
        raise UsageError("The value is empty. Type it from a terminal, send it to stdin, or give --from-file.")
    if "\0" in value or len(content) > LONGEST_SECRET:
        raise UsageError(f"The value of a secret is text of 1 to {LONGEST_SECRET} bytes without NUL characters.")
    return value

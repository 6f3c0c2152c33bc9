"""`tokens list|create|revoke`."""

from itertools import islice
from typing import Annotated

import typer

from gpu_dev.durations import parse_duration
from gpu_dev.errors import UnreachableError
from gpu_dev.options import Output
from gpu_dev.output import Format, show_list, show_one
from gpu_dev.session import client_for
from gpu_dev.terminal import put, say
from gpu_dev.views import TOKEN
from reservation_core.contracts import TokenCreate

app = typer.Typer(no_args_is_help=True, add_completion=False)
_MOST = 10_000


@app.command("list")
def list_tokens(ctx: typer.Context, output: Output = Format.TABLE) -> None:
    """List tokens (never their secrets)."""
    with client_for(ctx) as client:
        put(show_list(list(islice(client.tokens(), _MOST)), TOKEN, output))


@app.command()
def create(
    ctx: typer.Context,
    name: Annotated[str | None, typer.Option(help="What it is for.")] = None,
    user: Annotated[str | None, typer.Option(help="For this user (administrators).")] = None,
    expires_in: Annotated[str | None, typer.Option(help="Stops working after this time, such as 30d.")] = None,
    output: Annotated[Format | None, typer.Option("--output", "-o", help="Show the whole answer so.")] = None,
) -> None:
    """Create a token and print it: the only time that it is shown."""
    longest = None if expires_in is None else parse_duration(expires_in)
    with client_for(ctx) as client:
        made = client.create_token(TokenCreate(name=name, user=user, expires_in=longest))
    if made.token is None:
        # The answer was lost on its way and this is its repetition, which holds no secret.
        raise UnreachableError(
            f"The connection broke while {made.id} was made, and its secret is lost. Revoke it and create another.",
            next_command=f"gpu-dev tokens revoke {made.id}",
        )
    if output is not None:
        put(show_one(made, TOKEN, output))
        if output in (Format.JSON, Format.YAML):
            return
    else:
        say(f"{made.id} for {made.user}. Keep the token now: it is not shown again.")
    put(f"{made.token}\n")


@app.command()
def revoke(ctx: typer.Context, token_ids: Annotated[list[str], typer.Argument(metavar="TOKEN-ID...")]) -> None:
    """Make tokens stop working."""
    with client_for(ctx) as client:
        for token_id in token_ids:
            client.revoke_token(token_id)
            put(f"{token_id} revoked\n")

"""`login` and `logout`. A token is never an argument: arguments are seen by everybody on the machine."""

import os
import sys
from getpass import getpass
from typing import Annotated

import typer

from gpu_dev.asking import can_ask
from gpu_dev.client import GpuDevClient
from gpu_dev.connection import Connection, checked_token, forget_login, is_loopback, login_file, store_login
from gpu_dev.errors import UsageError
from gpu_dev.exchange import Exchange
from gpu_dev.session import connection_of, server_of
from gpu_dev.terminal import put, say

login_app = typer.Typer(add_completion=False)
logout_app = typer.Typer(add_completion=False)


@login_app.command()
def login(
    ctx: typer.Context,
    server: Annotated[str | None, typer.Argument(help="The server's address (default: as for every command).")] = None,
    token_stdin: Annotated[bool, typer.Option("--token-stdin", help="Read the token from stdin.")] = False,
) -> None:
    """Check a token with the server and remember both, readable by you alone."""
    url = server_of(ctx, server)
    if url.startswith("http://") and not is_loopback(url):
        say(f"warning: {url} is not encrypted: whoever can listen in on the way can take the token. Use https.")
    if token_stdin:
        token = checked_token(sys.stdin.read(), "stdin")
    elif can_ask():
        token = checked_token(getpass(f"Token for {url} (not shown): ", stream=sys.stderr), "The answer")
    else:
        raise UsageError(
            "There is no terminal to ask for the token at.", next_command="gpu-dev login --token-stdin < token-file"
        )
    with GpuDevClient(Exchange(Connection(url, token, "login"))) as client:
        me = client.me()
    path = login_file(os.environ)
    store_login(path, url, token)
    put(f"Logged in to {url} as {me.name} ({me.role.value}); the token is in {path}\n")


@logout_app.command()
def logout(ctx: typer.Context) -> None:
    """Forget the stored token. It goes on working: `gpu-dev tokens revoke` ends it for good."""
    url = connection_of(ctx).server
    if forget_login(login_file(os.environ), url):
        put(f"The token for {url} is forgotten\n")
    else:
        say(f"No token for {url} was stored.")

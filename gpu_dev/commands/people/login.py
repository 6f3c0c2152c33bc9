"""`login` and `logout`. A token is never an argument: arguments are seen by everybody on the machine."""

import os
import sys
from getpass import getpass
from typing import Annotated

import typer

from gpu_dev.client import GpuDevClient
from gpu_dev.display.local_times import minute
from gpu_dev.errors import UsageError
from gpu_dev.inputs.asking import can_ask
from gpu_dev.server.connection import Connection, checked_token, forget_login, is_loopback, login_file, store_login
from gpu_dev.server.exchange import Exchange
from gpu_dev.server.signing_in import sign_in
from gpu_dev.server.ways import DEFAULT_SERVICE_ACCOUNT_TOKEN, Way, WayKind
from gpu_dev.session import connection_of, server_of
from gpu_dev.terminal import put, say

login_app = typer.Typer(add_completion=False)
logout_app = typer.Typer(add_completion=False)


@login_app.command()
def login(
    ctx: typer.Context,
    server: Annotated[
        str | None, typer.Argument(metavar="SERVER", help="The server's address (default: as for every command).")
    ] = None,
    token_stdin: Annotated[bool, typer.Option("--token-stdin", help="Read the token from stdin.")] = False,
    aws: Annotated[bool, typer.Option("--aws", help="Sign in with the AWS credentials that are set up here.")] = False,
    aws_region: Annotated[
        str | None, typer.Option(help="Sign for this region's STS (default: AWS's global endpoint).")
    ] = None,
    oidc: Annotated[
        bool, typer.Option("--oidc", help="Sign in with an ID token from a file, a command or --gcp.")
    ] = False,
    id_token_file: Annotated[str | None, typer.Option(metavar="FILE", help="A file with an ID token.")] = None,
    id_token_command: Annotated[
        str | None,
        typer.Option(metavar="COMMAND", help='A command that prints one: "gcloud auth print-identity-token".'),
    ] = None,
    gcp: Annotated[bool, typer.Option("--gcp", help="The ID token of this machine or pod in Google's cloud.")] = False,
    kubernetes: Annotated[
        bool, typer.Option("--kubernetes", help="Sign in with the pod's service account's token.")
    ] = False,
    service_account_token: Annotated[
        str | None, typer.Option(metavar="FILE", help=f"The token's file (default: {DEFAULT_SERVICE_ACCOUNT_TOKEN}).")
    ] = None,
    server_id: Annotated[
        str | None, typer.Option(help="The server's own name, if it differs from its address.")
    ] = None,
) -> None:
    """Sign in with a token, or get a token with credentials of AWS, OIDC or Kubernetes.

    It is stored in a file that you alone can read. With such credentials, you are signed in again when it expires.
    """
    url = server_of(ctx, server)
    if url.startswith("http://") and not is_loopback(url):
        say(f"warning: {url} is not encrypted: the token can be read on the way. Use https.")
    files = {WayKind.OIDC_FILE: id_token_file, WayKind.OIDC_COMMAND: id_token_command}
    ways = [Way(kind, where) for kind, where in files.items() if where is not None]
    ways += [Way(WayKind.GCP, None, server_id)] if gcp else []
    if (oidc or ways) and len(ways) != 1:
        raise UsageError(
            "Say where the ID token is from: --id-token-file, --id-token-command or --gcp.",
            next_command='gpu-dev login --oidc --id-token-command "gcloud auth print-identity-token"',
        )
    ways += [Way(WayKind.AWS, aws_region, server_id)] if aws else []
    ways += [Way(WayKind.KUBERNETES, service_account_token)] if kubernetes else []
    if len(ways) + token_stdin > 1:
        raise UsageError("Choose one way to sign in: --aws, --oidc, --kubernetes or --token-stdin.")
    if ways:
        _with_proof(url, ways[0])
    else:
        _with_token(url, token_stdin=token_stdin)


def _with_proof(url: str, way: Way) -> None:
    exchange = Exchange(Connection(url))
    try:
        done = sign_in(exchange, way)
    finally:
        exchange.close()
    path = login_file(os.environ)
    store_login(path, url, done.token, way=way)
    put(
        f"Logged in to {url} as {done.user} ({done.role.value}) until {minute(done.expires_at)}; "
        "after that, commands sign in again by themselves\n"
    )


def _with_token(url: str, *, token_stdin: bool) -> None:
    if token_stdin:
        token = checked_token(sys.stdin.read(), "stdin")
    elif can_ask():
        token = checked_token(getpass(f"Token for {url} (not shown): ", stream=sys.stderr), "The answer")
    else:
        raise UsageError(
            "Cannot ask for the token without a terminal.", next_command="gpu-dev login --token-stdin < token-file"
        )
    with GpuDevClient(Exchange(Connection(url, token))) as client:
        me = client.me()
    path = login_file(os.environ)
    store_login(path, url, token)
    put(f"Logged in to {url} as {me.name} ({me.role.value}); the token is in {path}\n")


@logout_app.command()
def logout(ctx: typer.Context) -> None:
    """Forget the stored token. The token stays valid until `gpu-dev tokens revoke`."""
    url = connection_of(ctx).server
    if forget_login(login_file(os.environ), url):
        put(f"The token for {url} is forgotten\n")
    else:
        say(f"No token for {url} was stored.")

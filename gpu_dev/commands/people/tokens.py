"""`tokens list|create|renew|revoke`."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Annotated

import typer

from gpu_dev.client import GpuDevClient
from gpu_dev.display.output import Format, show_list, show_one
from gpu_dev.display.views import TOKEN
from gpu_dev.errors import ClientError, UnreachableError, UsageError
from gpu_dev.inputs.asking import confirmed
from gpu_dev.inputs.durations import parse_duration
from gpu_dev.inputs.ids import named_id, require_known
from gpu_dev.inputs.machine_zone import local_now
from gpu_dev.inputs.requests import make_request
from gpu_dev.inputs.times import parse_instant, zone_name
from gpu_dev.options import Output, Yes, Zone
from gpu_dev.server.connection import Connection, login_file, store_login
from gpu_dev.server.exchange import Exchange
from gpu_dev.session import client_for, connection_of, own_names
from gpu_dev.terminal import put, say
from gpu_dev.wire.people import TokenBudget, TokenCreate
from reservation_core.domain.statuses import TokenScope

if TYPE_CHECKING:
    from gpu_dev.wire.people import TokenOut

app = typer.Typer(no_args_is_help=True, add_completion=False)
_MOST = 10_000
_NAMED = 10


@app.command("list")
def list_tokens(ctx: typer.Context, output: Output = Format.TABLE) -> None:
    """List tokens (never their secrets)."""
    with client_for(ctx) as client:
        put(show_list(list(islice(client.tokens(), _MOST)), TOKEN, output))


@app.command()
def create(
    ctx: typer.Context,
    name: Annotated[str | None, typer.Option(help="Its purpose.")] = None,
    user: Annotated[str | None, typer.Option(help="For this user (administrators; default: you).")] = None,
    expires_in: Annotated[
        str | None,
        typer.Option(help="Stops working after this time, such as 30d (default: never; needed if your token expires)."),
    ] = None,
    scopes: Annotated[
        list[TokenScope] | None,
        typer.Option("--scope", help="A scope (may be repeated; default: those of your token)."),
    ] = None,
    gpu_hours: Annotated[
        float | None, typer.Option("--gpu-hours", help="Its budget in GPU-hours (default: no budget).")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", help='The end of the budget: "fri 18:00", 2030-01-31, RFC 3339.')
    ] = None,
    zone: Zone = None,
    output: Annotated[Format | None, typer.Option("--output", "-o", help="Output format.")] = None,
) -> None:
    """Create a token and print it; it is not shown again.

    It expires with the token that you use, and can do no more than that one.
    """
    longest = None if expires_in is None else parse_duration(expires_in)
    if until is not None and gpu_hours is None:
        raise UsageError("--until needs --gpu-hours, the size of the budget.")
    end = None if until is None else parse_instant(until, local_now(), zone_name(zone))
    fields = {"gpu_hours": gpu_hours} | ({} if end is None else {"until": end})
    budget = None if gpu_hours is None else make_request(TokenBudget, fields)
    with client_for(ctx) as client:
        asked = TokenCreate(name=name, user=user, expires_in=longest, scopes=scopes or None, budget=budget)
        made = client.create_token(asked)
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
def renew(ctx: typer.Context) -> None:
    """Replace the secret of your token, and print the new one. Tokens that were made with it go on working."""
    secret = f"gpudev_{token_urlsafe(32)}"
    connection, logins = connection_of(ctx), login_file(os.environ)
    with client_for(ctx) as client:
        try:
            client.renew_token(secret)
        except (ClientError, KeyboardInterrupt):
            # Whatever went wrong, it may have been done: then the old secret is worth nothing any more.
            if not _is_good(connection, secret):
                raise
    if connection.source == str(logins):
        store_login(logins, connection.server, secret, way=connection.way, current=False)
        say(f"The token is renewed, and the new secret is in {logins}. Keep it wherever else you use it.")
    else:
        say(
            f"The token is renewed; {connection.source} still has the old one. Keep the new one: it is not shown again."
        )
    put(f"{secret}\n")


def _is_good(connection: Connection, secret: str) -> bool:
    """Whether the server knows a secret; where it can't be asked the secret is printed, as it may be the right one."""
    try:
        with GpuDevClient(Exchange(replace(connection, token=secret, way=None))) as client:
            client.me()
    except UnreachableError:
        say("No answer came: this may be the token from now on, or still the old one. Try both.")
        put(f"{secret}\n")
        return False
    except ClientError:
        return False
    return True


@app.command()
def revoke(
    ctx: typer.Context,
    token_ids: Annotated[
        list[str] | None, typer.Argument(metavar="TOKEN-ID", show_default=False, help="Ids or names of tokens.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Revoke all tokens and browser sessions but the one in use.")
    ] = False,
    user: Annotated[str | None, typer.Option(help="With --all: of this user (administrators).")] = None,
    yes: Yes = False,
) -> None:
    """Revoke tokens, and all tokens that were made with them. It asks first, and names them."""
    if everything is bool(token_ids) or (user is not None and not everything):
        raise UsageError(
            "Name the tokens to revoke, or use --all.",
            next_command="gpu-dev tokens revoke TOKEN-ID, or gpu-dev tokens revoke --all [--user NAME]",
        )
    with client_for(ctx) as client:
        if everything:
            if not yes:
                confirmed(_all_of(client, user), yes=yes)
            done = client.revoke_tokens(user)
            put(f"{done.revoked} of {done.user}'s tokens revoked\n")
            return
        good = {token.id: token for token in client.tokens() if token.revoked_at is None}
        known = list(own_names(client, good.values()))
        chosen = [named_id(given, "tok-", known, "token", "gpu-dev tokens list") for given in token_ids or []]
        if not yes:
            for token_id in chosen:
                require_known(token_id, good, "token", "gpu-dev tokens list")
            confirmed(_named_ones(chosen, good), yes=yes)
        for token_id in chosen:
            client.revoke_token(token_id)
            put(f"{token_id} revoked\n")


def _all_of(client: GpuDevClient, user: str | None) -> str:
    """The question before all tokens of a user are revoked."""
    owner = client.me().name
    if user is not None:
        require_known(user, (one.name for one in islice(client.users(), _MOST)), "user", "gpu-dev users list")
    if user in (None, owner):
        return (
            "Revoke all of your tokens and browser sessions, and your calendar address? The token in use and those that"
            " it was made with stay. All others stop working at once, and so do tokens that were made with them."
        )
    return (
        f"Revoke all of {user}'s tokens and browser sessions, and the calendar address? They stop working at once, and"
        " so do tokens that were made with them, also for others."
    )


def _named_ones(chosen: Sequence[str], good: Mapping[str, "TokenOut"]) -> str:
    """The question before tokens are revoked, with those that end with them."""
    children = _made_with(chosen, good)
    it = "it" if len(chosen) == 1 else "them"
    too = f" Tokens that were made with {it} are revoked, too: {_in_words(children, good)}." if children else ""
    return (
        f"Revoke {_in_words(chosen, good)}? Programs that use {it} are refused at once, and browser sessions end.{too}"
    )


def _made_with(chosen: Sequence[str], good: Mapping[str, "TokenOut"]) -> list[str]:
    """The tokens that were made with some tokens, or with one made with them."""
    gone, found = set(chosen), list[str]()
    while more := [one.id for one in good.values() if one.made_with in gone and one.id not in gone]:
        gone.update(more)
        found += more
    return found


def _in_words(ids: Sequence[str], good: Mapping[str, "TokenOut"]) -> str:
    shown = [f"{good[one].name} ({one})" if one in good and good[one].name else one for one in ids[:_NAMED]]
    return ", ".join(shown) + (f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else "")

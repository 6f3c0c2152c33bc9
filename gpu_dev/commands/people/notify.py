"""`notify targets|add|verify|test|remove|show|set`: where one is told, and of what."""

import time
from itertools import islice
from typing import Annotated

import typer

from gpu_dev.client import GpuDevClient
from gpu_dev.display.calendar_views import TARGET
from gpu_dev.display.meanings import as_epilog
from gpu_dev.display.output import Column, Format, View, show_list, show_one
from gpu_dev.errors import ClientError, UsageError
from gpu_dev.inputs.asking import confirmed
from gpu_dev.inputs.ids import named_id, require_known
from gpu_dev.inputs.requests import make_request
from gpu_dev.options import Output, Yes
from gpu_dev.session import client_for, own_names
from gpu_dev.terminal import put, say
from gpu_dev.wire.notices import NoticePreferences, NoticePreferencesOut, NoticeTargetCreate, NoticeTargetOut
from reservation_core.domain.notices.kinds import KIND_MEANINGS, NoticeChannel, NoticeKind
from reservation_core.domain.similar_names import did_you_mean

app = typer.Typer(no_args_is_help=True, add_completion=False)
_MOST = 10_000
_NOBODY = "none"
_PATIENCE_S = 15.0
_PAUSE_S = 0.3


def _by_kind(found: NoticePreferencesOut) -> str:
    return "; ".join(f"{kind.value}: {','.join(channels) or _NOBODY}" for kind, channels in found.kinds.items())


_PREFERENCES = View[NoticePreferencesOut](name=lambda _found: "preferences", columns=(Column("KINDS", _by_kind),))
TargetId = Annotated[
    str,
    typer.Argument(
        metavar="TARGET", help="A notification address: its id or name, as `gpu-dev notify targets` shows it."
    ),
]


@app.command()
def targets(ctx: typer.Context, output: Output = Format.TABLE) -> None:
    """List notification addresses, and how the last delivery to each went."""
    with client_for(ctx) as client:
        put(show_list(list(islice(client.notices.targets(), _MOST)), TARGET, output))


@app.command()
def add(
    ctx: typer.Context,
    channel: Annotated[NoticeChannel, typer.Argument(metavar="CHANNEL", help="By which channel.")],
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="An e-mail address, or a webhook's https address.")],
    name: Annotated[str | None, typer.Option(help="A name for it.")] = None,
    output: Annotated[Format | None, typer.Option("--output", "-o", help="Output format.")] = None,
) -> None:
    """Add a notification address. An e-mail address gets a code first: confirm it with `notify verify`."""
    fields = {"channel": channel, "address": address} | ({} if name is None else {"name": name})
    with client_for(ctx) as client:
        made = client.notices.add(make_request(NoticeTargetCreate, fields))
    if output is not None:
        put(show_one(made, TARGET, output))
        return
    put(f"{made.id}\n")
    if made.secret is not None:
        say("Keep the secret, which signs the deliveries: it is not shown again.")
        put(f"{made.secret}\n")
    if channel is NoticeChannel.EMAIL:
        with client_for(ctx) as client:
            if _arrived(client, made):
                say(f"A code was mailed to {made.address}. Confirm it: gpu-dev notify verify {made.id} CODE")
    else:
        say(f"Check that notifications arrive there: gpu-dev notify test {made.id}")


@app.command()
def verify(
    ctx: typer.Context,
    target_id: TargetId,
    code: Annotated[str, typer.Argument(metavar="CODE", help="The code from the e-mail.")],
) -> None:
    """Confirm an e-mail address with the code that was mailed there."""
    with client_for(ctx) as client:
        target = client.notices.verify(_id_of(client, target_id), code)
    put(f"{target.id}: {target.status.value}\n")


@app.command()
def test(ctx: typer.Context, target_id: TargetId) -> None:
    """Send a test to a notification address, and say whether it was delivered.

    An address that is not confirmed gets its code again.
    """
    with client_for(ctx) as client:
        whole = _id_of(client, target_id)
        before = _target(client, whole)
        delivery = client.notices.test(whole).delivery
        if before is None or _arrived(client, before):
            put(f"{delivery} was delivered\n")


def _target(client: GpuDevClient, target_id: str) -> NoticeTargetOut | None:
    return next((target for target in client.notices.targets() if target.id == target_id), None)


def _id_of(client: GpuDevClient, text: str) -> str:
    return named_id(
        text, "ntg-", own_names(client, client.notices.targets()), "notification address", "gpu-dev notify targets"
    )


def _arrived(client: GpuDevClient, before: NoticeTargetOut) -> bool:
    """Whether the next delivery to a target succeeded; says so where it is not over soon. Raises ClientError."""
    limit = time.monotonic() + _PATIENCE_S
    while time.monotonic() < limit:
        after = _target(client, before.id) or before
        if after.delivered_at != before.delivered_at:
            return True
        if after.failed_at != before.failed_at:
            raise ClientError(f"Nothing arrived at {after.address}: {after.failure}")
        client.pause(_PAUSE_S)
    say(f"Not delivered yet. How {before.id} went: gpu-dev notify targets")
    return False


@app.command()
def remove(
    ctx: typer.Context,
    target_ids: Annotated[list[str], typer.Argument(metavar="TARGET", help="Ids or names of notification addresses.")],
    yes: Yes = False,
) -> None:
    """Remove notification addresses: nothing is sent there any more. It asks first."""
    with client_for(ctx) as client:
        chosen = [_id_of(client, target_id) for target_id in target_ids]
        if not yes:
            stored = {target.id: target.address for target in islice(client.notices.targets(), _MOST)}
            for target_id in chosen:
                require_known(target_id, stored, "notification address", "gpu-dev notify targets")
            addresses = ", ".join(f"{stored[one]} ({one})" for one in chosen)
            confirmed(f"Remove {addresses}? Nothing is sent there any more.", yes=yes)
        for target_id in chosen:
            put(f"{client.notices.remove(target_id).id} removed\n")


@app.command()
def show(ctx: typer.Context, output: Output = Format.TABLE) -> None:
    """Show which events you are notified of, and by which channels."""
    with client_for(ctx) as client:
        _show(client.notices.preferences(), output)
        if output is Format.TABLE and client.me().name not in {target.user for target in client.notices.targets()}:
            say("You have no address yet, so nothing is sent. How to add one: gpu-dev notify add -h")


@app.command("set", epilog=as_epilog("Kinds:", KIND_MEANINGS))
def set_preferences(
    ctx: typer.Context,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="KIND=CHANNELS",
            help=f"Such as ended=slack,webhook or started=none. Channels: {', '.join(NoticeChannel)}. "
            "`gpu-dev notify show` says if the server can't send e-mail.",
        ),
    ],
    output: Output = Format.TABLE,
) -> None:
    """Choose which events you are notified of; kinds that are not named stay as they are."""
    with client_for(ctx) as client:
        found, tag = client.notices.preferences_with_etag()
        said = found.kinds
        for word in words:
            kind, channels = read_preference(word)
            said[kind] = channels
        _show(client.notices.put_preferences(NoticePreferences(kinds=said), if_match=tag), output)


def read_preference(word: str) -> tuple[NoticeKind, list[NoticeChannel]]:
    """`ended=email,slack`. Raises UsageError that says which word is wrong, and names those there are."""
    kind, equals, text = word.partition("=")
    if kind not in set(NoticeKind):
        meant = did_you_mean(kind, NoticeKind)
        raise UsageError(f"{kind!r} is no kind of notification.{meant} There are: {', '.join(NoticeKind)}.")
    ways = f"{', '.join(NoticeChannel)}, or none"
    if not equals or not text:
        raise UsageError(f"Write {kind}=CHANNELS. Channels: {ways}.")
    channels = [] if text == _NOBODY else text.split(",")
    for channel in channels:
        if channel not in set(NoticeChannel):
            raise UsageError(f"{channel!r} is no channel.{did_you_mean(channel, NoticeChannel)} Channels: {ways}.")
    return NoticeKind(kind), [NoticeChannel(channel) for channel in channels]


def _show(found: NoticePreferencesOut, output: Format) -> None:
    if output in (Format.TABLE, Format.WIDE):
        width = max((len(kind.value) for kind in found.kinds), default=0)
        for kind, channels in found.kinds.items():
            put(f"{kind.value:<{width}}  {', '.join(channels) or _NOBODY}\n")
        if NoticeChannel.EMAIL in found.unavailable:
            say("Nothing is sent by email: this server has no mail server.")
    else:
        put(show_one(found, _PREFERENCES, output))

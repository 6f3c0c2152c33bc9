"""`notify targets|add|verify|test|remove|show|set`: where one is told, and of what."""

from itertools import islice
from typing import Annotated

import typer

from gpu_dev.display.calendar_views import TARGET
from gpu_dev.display.output import Column, Format, View, show_list, show_one
from gpu_dev.errors import UsageError
from gpu_dev.inputs.requests import checked
from gpu_dev.options import Output
from gpu_dev.session import client_for
from gpu_dev.terminal import put, say
from reservation_core.contracts.notices import NoticePreferences, NoticeTargetCreate
from reservation_core.domain.notices import NoticeChannel, NoticeKind

app = typer.Typer(no_args_is_help=True, add_completion=False)
_MOST = 10_000
_NOBODY = "none"


def _by_kind(found: NoticePreferences) -> str:
    return "; ".join(f"{kind.value}: {','.join(channels) or _NOBODY}" for kind, channels in found.kinds.items())


_PREFERENCES = View[NoticePreferences](name=lambda _found: "preferences", columns=(Column("KINDS", _by_kind),))
TargetId = Annotated[str, typer.Argument(metavar="TARGET", help="A target's id: gpu-dev notify targets.")]


@app.command()
def targets(ctx: typer.Context, output: Output = Format.TABLE) -> None:
    """List the places where you are told, and how the last notice went."""
    with client_for(ctx) as client:
        put(show_list(list(islice(client.notices.targets(), _MOST)), TARGET, output))


@app.command()
def add(
    ctx: typer.Context,
    channel: Annotated[NoticeChannel, typer.Argument(help="How.")],
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="An e-mail address, or a webhook's https address.")],
    name: Annotated[str | None, typer.Option(help="What to call it.")] = None,
    output: Annotated[Format | None, typer.Option("--output", "-o", help="Show the whole answer so.")] = None,
) -> None:
    """Be told there. An e-mail address gets a code first: confirm it with `notify verify`."""
    fields = {"channel": channel, "address": address} | ({} if name is None else {"name": name})
    with client_for(ctx) as client:
        made = client.notices.add(checked(NoticeTargetCreate, fields))
    if output is not None:
        put(show_one(made, TARGET, output))
        return
    put(f"{made.id}\n")
    if made.secret is not None:
        say("Keep the secret that its deliveries are signed with: it is not shown again.")
        put(f"{made.secret}\n")
    elif channel is NoticeChannel.EMAIL:
        say(f"A code was mailed to {made.address}. Confirm it: gpu-dev notify verify {made.id} CODE")


@app.command()
def verify(ctx: typer.Context, target_id: TargetId, code: Annotated[str, typer.Argument(metavar="CODE")]) -> None:
    """Confirm an e-mail address with the code that was mailed there."""
    with client_for(ctx) as client:
        target = client.notices.verify(target_id, code)
    put(f"{target.id}: {target.status.value}\n")


@app.command()
def test(ctx: typer.Context, target_id: TargetId) -> None:
    """Send a test there; `notify targets` says how it went."""
    with client_for(ctx) as client:
        put(f"{client.notices.test(target_id).delivery} is on its way\n")


@app.command()
def remove(ctx: typer.Context, target_ids: Annotated[list[str], typer.Argument(metavar="TARGET...")]) -> None:
    """Be told there no more."""
    with client_for(ctx) as client:
        for target_id in target_ids:
            put(f"{client.notices.remove(target_id).id} removed\n")


@app.command()
def show(ctx: typer.Context, output: Output = Format.TABLE) -> None:
    """Show of what you are told, and by which channels."""
    with client_for(ctx) as client:
        _show(client.notices.preferences(), output)


@app.command("set")
def set_preferences(
    ctx: typer.Context,
    words: Annotated[list[str], typer.Argument(metavar="KIND=CHANNELS...", help="ended=email,slack or started=none.")],
    output: Output = Format.TABLE,
) -> None:
    """Say of what you want to be told; kinds that are not named stay as they are."""
    with client_for(ctx) as client:
        found, tag = client.notices.preferences_with_etag()
        said = found.kinds
        for word in words:
            kind, channels = read_preference(word)
            said[kind] = channels
        _show(client.notices.put_preferences(NoticePreferences(kinds=said), if_match=tag), output)


def read_preference(word: str) -> tuple[NoticeKind, list[NoticeChannel]]:
    """`ended=email,slack`. Raises UsageError that names what there is."""
    kind, _, text = word.partition("=")
    try:
        # Without an equals sign there is no channel of the name "".
        channels = [] if text == _NOBODY else [NoticeChannel(part) for part in text.split(",")]
        return NoticeKind(kind), channels
    except ValueError as error:
        kinds, ways = ", ".join(NoticeKind), ", ".join(NoticeChannel)
        raise UsageError(f"{word!r}: write KIND=CHANNELS. Kinds: {kinds}. Channels: {ways}, or none.") from error


def _show(found: NoticePreferences, output: Format) -> None:
    if output in (Format.TABLE, Format.WIDE):
        width = max((len(kind.value) for kind in found.kinds), default=0)
        for kind, channels in found.kinds.items():
            put(f"{kind.value:<{width}}  {', '.join(channels) or _NOBODY}\n")
    else:
        put(show_one(found, _PREFERENCES, output))

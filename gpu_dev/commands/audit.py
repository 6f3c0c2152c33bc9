"""`audit`: the record."""

import json
from itertools import islice
from typing import Annotated

import typer

from gpu_dev.options import Output
from gpu_dev.output import Column, Format, View, local_time, show_list
from gpu_dev.session import client_for
from gpu_dev.terminal import put, say
from gpu_dev.times import local_now, parse_instant, zone_name
from reservation_core.contracts_events import EventOut

app = typer.Typer(add_completion=False)


def _became(event: EventOut) -> str:
    return "" if event.before == event.after else f"{event.before or '-'} -> {event.after or '-'}"


_EVENT = View[EventOut](
    name=lambda event: str(event.id),
    columns=(
        Column("AT", lambda event: local_time(event.at)),
        Column("ACTOR", lambda event: event.actor),
        Column("WHAT", lambda event: event.kind),
        Column("ABOUT", lambda event: event.subject or ""),
        Column("BECAME", _became),
        Column("WHY", lambda event: event.reason or ""),
        Column("MORE", lambda event: json.dumps(event.data, ensure_ascii=False) if event.data else "", wide=True),
    ),
    empty="Nothing of that kind is on record.",
)


@app.command()
def audit(
    ctx: typer.Context,
    kind: Annotated[list[str] | None, typer.Option(help="Only this, such as node_fenced (may be repeated).")] = None,
    actor: Annotated[str | None, typer.Option(help="Only what this user did; `system` is the server.")] = None,
    subject: Annotated[
        str | None, typer.Option(help="Only about this: an id, a node, user:NAME, project:NAME, policy:SCOPE.")
    ] = None,
    start: Annotated[str | None, typer.Option("--from", help="Only from this time on.")] = None,
    end: Annotated[str | None, typer.Option("--to", help="Only before this time.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most so many, the newest.")] = 100,
    zone: Annotated[
        str | None, typer.Option("--time-zone", "-z", help="What times without offset are meant in.")
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Show who did what to what, when and why, newest first.

    For administrators; for others with --subject, when it is theirs.
    """
    name, now = zone_name(zone), local_now()
    with client_for(ctx) as client:
        found = client.record.newest_first(
            kinds=kind or (),
            actor=actor,
            subject=subject,
            start=None if start is None else parse_instant(start, now, name),
            end=None if end is None else parse_instant(end, now, name),
        )
        events = list(islice(found, limit + 1))
    if len(events) > limit:
        say(f"Only the newest {limit} are shown; more with --limit.")
    put(show_list(events[:limit], _EVENT, output))

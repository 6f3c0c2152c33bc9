"""`audit`: the audit log; `audit export`: all of it, to keep it elsewhere."""

import json
import os
from collections.abc import Iterable
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from gpu_dev.errors import UsageError
from gpu_dev.options import Output
from gpu_dev.output import Column, Format, View, as_json, local_time, show_list
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


Kinds = Annotated[list[str] | None, typer.Option(help="Only this, such as node_fenced (may be repeated).")]
Actor = Annotated[str | None, typer.Option(help="Only what this user did; `system` is the server.")]
Subject = Annotated[
    str | None, typer.Option(help="Only about this: an id, a node, user:NAME, project:NAME, policy:SCOPE.")
]
From = Annotated[str | None, typer.Option("--from", help="Only from this time on.")]
To = Annotated[str | None, typer.Option("--to", help="Only before this time.")]
Zone = Annotated[str | None, typer.Option("--time-zone", "-z", help="What times without offset are meant in.")]


@app.callback(invoke_without_command=True)
def audit(
    ctx: typer.Context,
    kind: Kinds = None,
    actor: Actor = None,
    subject: Subject = None,
    start: From = None,
    end: To = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most so many, the newest.")] = 100,
    zone: Zone = None,
    output: Output = Format.TABLE,
) -> None:
    """Show who did what to what, when and why, newest first.

    For administrators; for others with --subject, when it is theirs.
    """
    if ctx.invoked_subcommand is not None:
        return
    with client_for(ctx) as client:
        found = client.record.newest_first(
            kinds=kind or (), actor=actor, subject=subject, start=_instant(start, zone), end=_instant(end, zone)
        )
        events = list(islice(found, limit + 1))
    if len(events) > limit:
        say(f"Only the newest {limit} are shown; more with --limit.")
    put(show_list(events[:limit], _EVENT, output))


@app.command()
def export(
    ctx: typer.Context,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Write here, whole or not at all, instead of to stdout.")
    ] = None,
    kind: Kinds = None,
    actor: Actor = None,
    subject: Subject = None,
    start: From = None,
    end: To = None,
    zone: Zone = None,
) -> None:
    """Write the audit log as JSON lines, newest first: one event a line, in the words of the REST API.

    For administrators; for others with --subject, when it is theirs. Old events are removed, by default after 400
    days: export a month with --from and --to before that.
    """
    with client_for(ctx) as client:
        found = client.record.newest_first(
            kinds=kind or (), actor=actor, subject=subject, start=_instant(start, zone), end=_instant(end, zone)
        )
        if file is None:
            for event in found:
                put(as_json(event.model_dump(mode="json")))
            return
        count = _write_whole(file, (as_json(event.model_dump(mode="json")) for event in found))
    say(f"{count} events are in {file}.")


def _instant(text: str | None, zone: str | None) -> datetime | None:
    return None if text is None else parse_instant(text, local_now(), zone_name(zone))


def _write_whole(file: Path, lines: Iterable[str]) -> int:
    """Write lines into a file that is only there once all of them are; returns how many."""
    unfinished = file.with_name(f"{file.name}.unfinished")
    count = 0
    try:
        with unfinished.open("w", encoding="utf-8") as writing:
            for line in lines:
                writing.write(line)
                count += 1
            writing.flush()
            os.fsync(writing.fileno())
        unfinished.replace(file)
    except OSError as error:
        raise UsageError(f"{file} could not be written: {error.strerror}.") from error
    finally:
        unfinished.unlink(missing_ok=True)
    return count

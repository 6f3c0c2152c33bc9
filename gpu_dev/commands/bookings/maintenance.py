"""`maintenance plan|list|cancel`."""

from datetime import datetime
from itertools import islice
from typing import Annotated, Any

import typer

from gpu_dev.display.calendar_views import AFFECTED, WINDOW
from gpu_dev.display.output import Format, show_list, show_one
from gpu_dev.errors import UsageError
from gpu_dev.inputs.asking import confirmed
from gpu_dev.inputs.durations import parse_duration
from gpu_dev.inputs.requests import checked
from gpu_dev.inputs.times import local_now, parse_instant, zone_name
from gpu_dev.options import Output
from gpu_dev.session import client_for
from gpu_dev.terminal import Rendered, put, say
from reservation_core.contracts.maintenance import MaintenanceCreate

app = typer.Typer(no_args_is_help=True, add_completion=False)
_MOST = 10_000
OneOutput = Annotated[Format | None, typer.Option("--output", "-o", help="Show the answer so.")]


@app.command()
def plan(
    ctx: typer.Context,
    where: Annotated[
        list[str], typer.Argument(metavar="NODE[:GPUS]...", help="Nodes, or cards of them: n1 or n1:0,2.")
    ],
    reason: Annotated[str, typer.Option(help="Why: whoever it affects is told so.")],
    start: Annotated[str | None, typer.Option("--start", "-s", help="When (default: now).")] = None,
    duration: Annotated[str | None, typer.Option("--for", "-d", help="For how long: 4h, 2d.")] = None,
    end: Annotated[str | None, typer.Option("--end", help="Until when, instead of --for.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say whom it would affect.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    zone: Annotated[
        str | None, typer.Option("--time-zone", "-z", help="What times without offset are meant in.")
    ] = None,
    output: OneOutput = None,
) -> None:
    """Keep cards from everybody for a time (administrators). Shows whom it affects before it does."""
    name, now = zone_name(zone), local_now()
    fields: dict[str, Any] = read_places(where) | {"reason": reason}
    fields |= {"start": None if start is None else parse_instant(start, now, name, whole_days=False)}
    fields |= {"end": None if end is None else parse_instant(end, now, name, whole_days=False)}
    fields |= {"duration": None if duration is None else parse_duration(duration)}
    fields = {key: value for key, value in fields.items() if value is not None}
    request = checked(MaintenanceCreate, _as_wire(fields))
    with client_for(ctx) as client:
        if dry_run or not yes:
            preview = client.maintenance.plan(checked(MaintenanceCreate, _as_wire(fields) | {"dry_run": True}))
            if dry_run and output is not None:
                put(show_one(preview, WINDOW, output))
                return
            affected = show_list(preview.affected, AFFECTED, Format.TABLE)
            if dry_run:
                put(affected)
                return
            say(Rendered(affected.rstrip()))
            confirmed("Plan it?", yes=yes)
        window = client.maintenance.plan(request)
    if output is not None:
        put(show_one(window, WINDOW, output))
        return
    put(show_one(window, WINDOW, Format.TABLE))
    put(show_list(window.affected, AFFECTED, Format.TABLE))


@app.command("list")
def list_windows(ctx: typer.Context, output: Output = Format.TABLE) -> None:
    """List windows that are planned or open."""
    with client_for(ctx) as client:
        put(show_list(list(islice(client.maintenance.windows(), _MOST)), WINDOW, output))


@app.command()
def cancel(
    ctx: typer.Context,
    window_ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Windows' ids.")],
    output: OneOutput = None,
) -> None:
    """Call windows off, or end them early: their cards are given out again (administrators)."""
    with client_for(ctx) as client:
        for window_id in window_ids:
            window = client.maintenance.cancel(window_id)
            said = f"{window.id}: {window.status.value if window.status else 'gone'}\n"
            put(said if output is None else show_one(window, WINDOW, output))


def read_places(where: list[str]) -> dict[str, Any]:
    """Nodes, or cards of nodes (`n1:0,2`), as the request's fields. Raises UsageError for a mixture or no number."""
    if not any(":" in place for place in where):
        return {"nodes": where}
    cards = []
    for place in where:
        node, _, indices = place.partition(":")
        if not all(one.isascii() and one.isdigit() for one in indices.split(",")):
            raise UsageError(f"{place!r}: name cards as n1:0,2, of every node, or nodes only.")
        cards += [{"node": node, "index": int(one)} for one in indices.split(",")]
    return {"gpus": cards}


def _as_wire(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in fields.items()}

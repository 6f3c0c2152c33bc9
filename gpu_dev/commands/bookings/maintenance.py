"""`maintenance plan|list|cancel`."""

from datetime import datetime
from itertools import islice
from typing import Annotated, Any

import typer

from gpu_dev.display.calendar_views import AFFECTED, WINDOW
from gpu_dev.display.output import Format, show_list, show_one
from gpu_dev.errors import UsageError
from gpu_dev.inputs.asking import confirmed
from gpu_dev.inputs.ids import named_id, require_known
from gpu_dev.inputs.requests import make_request
from gpu_dev.inputs.slots import window_fields
from gpu_dev.options import Output, Yes, Zone
from gpu_dev.session import client_for
from gpu_dev.terminal import Rendered, put, say
from gpu_dev.wire.maintenance import MaintenanceCreate
from reservation_core.domain.status_words import window_status

app = typer.Typer(no_args_is_help=True, add_completion=False)
_MOST = 10_000
OneOutput = Annotated[Format | None, typer.Option("--output", "-o", help="Output format.")]


@app.command()
def plan(
    ctx: typer.Context,
    where: Annotated[list[str], typer.Argument(metavar="NODE[:GPUS]", help="Nodes, or GPUs of nodes: n1 or n1:0,2.")],
    reason: Annotated[str, typer.Option(help="The reason; affected users see it.")],
    start: Annotated[str | None, typer.Option("--start", "-s", help="When (default: now).")] = None,
    duration: Annotated[str | None, typer.Option("--for", "-d", help="For how long: 4h, 2d.")] = None,
    end: Annotated[str | None, typer.Option("--end", help="Until when, instead of --for.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the affected jobs and bookings.")] = False,
    yes: Yes = False,
    zone: Zone = None,
    output: OneOutput = None,
) -> None:
    """Plan a maintenance window, in which GPUs are not given out (administrators). Shows what it affects, then asks."""
    fields = read_places(where) | {"reason": reason} | window_fields(start, end, duration, zone)
    request = make_request(MaintenanceCreate, _as_wire(fields))
    with client_for(ctx) as client:
        if dry_run or not yes:
            preview = client.maintenance.plan(make_request(MaintenanceCreate, _as_wire(fields) | {"dry_run": True}))
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
    window_ids: Annotated[list[str], typer.Argument(metavar="ID", help="Ids of maintenance windows.")],
    yes: Yes = False,
    output: OneOutput = None,
) -> None:
    """Cancel maintenance windows, or end them early: their GPUs are given out again (administrators). It asks first."""
    with client_for(ctx) as client:
        known = {window.id or "": window for window in islice(client.maintenance.windows(), _MOST)}
        names = [(window_id, None) for window_id in known]
        listed = "gpu-dev maintenance list"
        chosen = [named_id(text, "mnt-", names, "maintenance window", listed, whose="") for text in window_ids]
        if not yes:
            for window_id in chosen:
                require_known(window_id, known, "maintenance window", listed)
            windows = ", ".join(f"{one} ({known[one].reason})" for one in chosen)
            confirmed(f"Cancel {windows}? Jobs and bookings get the GPUs again at once.", yes=yes)
        for window_id in chosen:
            window = client.maintenance.cancel(window_id)
            said = f"{window.id}: {window_status(window.status) if window.status else 'gone'}\n"
            put(said if output is None else show_one(window, WINDOW, output))


def read_places(where: list[str]) -> dict[str, Any]:
    """Nodes, or cards of nodes (`n1:0,2`), as the request's fields. Raises UsageError for a mixture or no number."""
    if not any(":" in place for place in where):
        return {"nodes": where}
    cards = []
    for place in where:
        node, _, indices = place.partition(":")
        if not all(one.isascii() and one.isdigit() for one in indices.split(",")):
            raise UsageError(f"{place!r}: name GPUs as n1:0,2 for every node, or only nodes.")
        cards += [{"node": node, "index": int(one)} for one in indices.split(",")]
    return {"gpus": cards}


def _as_wire(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in fields.items()}

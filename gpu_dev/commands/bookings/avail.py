"""`avail`: how much is free when, as a timeline."""

import shutil
from typing import Annotated

import typer

from gpu_dev.display.output import Column, Format, View, show_one
from gpu_dev.display.timeline import timeline
from gpu_dev.inputs.durations import parse_duration
from gpu_dev.inputs.machine_zone import local_now
from gpu_dev.inputs.times import parse_period, zone_name
from gpu_dev.options import Output, Zone
from gpu_dev.session import check_type, client_for
from gpu_dev.terminal import put
from gpu_dev.wire.bookings import Availability

app = typer.Typer(add_completion=False)
_DATA = View[Availability](name=lambda found: found.start.isoformat(), columns=(Column("FROM", lambda _found: ""),))


@app.command()
def avail(
    ctx: typer.Context,
    start: Annotated[str | None, typer.Option("--from", help="From when (default: now).")] = None,
    end: Annotated[str | None, typer.Option("--to", help="Until when (default: 7 days later).")] = None,
    step: Annotated[str, typer.Option(help="In steps of this length; a table joins steps to fit the terminal.")] = "1h",
    gpu_type: Annotated[str | None, typer.Option("--type", "-t", help="Only this type.")] = None,
    zone: Zone = None,
    output: Output = Format.TABLE,
) -> None:
    """Show how many GPUs of each type can be booked, and when. GPUs promised to waiting jobs are not free."""
    begin, until = parse_period(start, end, local_now(), zone_name(zone))
    with client_for(ctx) as client:
        found = client.bookings.availability(
            start=begin,
            end=until,
            step=parse_duration(step),
        )
        if gpu_type is not None:
            wanted = check_type(client, gpu_type, (kind.gpu_type for kind in found.items))
            found.items = [kind for kind in found.items if kind.gpu_type == wanted]
    if output in (Format.JSON, Format.YAML):
        put(show_one(found, _DATA, output))
    elif output is Format.NAME:
        put("".join(f"{kind.gpu_type}\n" for kind in found.items))
    else:
        put(timeline(found, shutil.get_terminal_size((100, 24)).columns))

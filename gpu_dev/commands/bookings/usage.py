"""`usage`: GPU-hours held, used, idle and wasted."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

import typer
from msgspec import Struct
from msgspec.structs import replace

from gpu_dev.display.calendar_views import USAGE_COST, USAGE_LINE, USAGE_UTILISED
from gpu_dev.display.local_times import minute, slot_words
from gpu_dev.display.output import Column, Format, View, csv_text, show_list, show_one
from gpu_dev.errors import UsageError
from gpu_dev.inputs.durations import parse_duration
from gpu_dev.inputs.machine_zone import local_now
from gpu_dev.inputs.times import parse_period, zone_name
from gpu_dev.options import Zone
from gpu_dev.session import client_for
from gpu_dev.terminal import put
from gpu_dev.wire.policy import UsageOut, UsageSeriesOut
from reservation_core.domain.history.shown_usage import shown_usage
from reservation_core.domain.policy.nouns import UsageBy

app = typer.Typer(add_completion=False)
_DATA = View[UsageOut](name=lambda found: found.by.value, columns=(Column("BY", lambda found: found.by.value),))


class UsageFormat(StrEnum):
    """How to show usage: like other answers, or as CSV."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"


@app.command()
def usage(
    ctx: typer.Context,
    by: Annotated[UsageBy, typer.Option(help="Sum by this: one line for each.")] = UsageBy.USER,
    start: Annotated[str | None, typer.Option("--from", help="From when (default: a week before --to).")] = None,
    end: Annotated[str | None, typer.Option("--to", help="Until when (default: now).")] = None,
    step: Annotated[
        str | None,
        typer.Option("--step", help="Show figures over time, in steps of this length, such as 1d (default: one sum)."),
    ] = None,
    zone: Zone = None,
    output: Annotated[UsageFormat, typer.Option("--output", "-o", help="Output format.")] = UsageFormat.TABLE,
) -> None:
    """Show GPU-hours held, used, idle and wasted: your own; administrators see those of all users."""
    if step is not None and output is UsageFormat.CSV:
        raise UsageError("CSV has no steps. Leave out --step, or choose -o table, json or yaml.")
    since, until = parse_period(start, end, local_now(), zone_name(zone), past=True)
    with client_for(ctx) as client:
        if step is not None:
            _show_series(client.policy.usage_series(by, parse_duration(step), start=since, end=until), output)
            return
        if output is UsageFormat.CSV:
            put(csv_text(client.policy.usage_csv(by, start=since, end=until)))
            return
        found = client.policy.usage(by, start=since, end=until)
    if output is not UsageFormat.TABLE:
        put(show_one(found, _DATA, Format(output.value)))
        return
    more = (
        *(USAGE_UTILISED if found.total.utilised is not None else ()),
        *((USAGE_COST,) if found.total.costs else ()),
    )
    view = replace(USAGE_LINE, columns=(*USAGE_LINE.columns, *more))
    shown = shown_usage(found.items, found.total)
    lines = [
        replace(line, **figures._asdict())
        for line, figures in zip([*found.items, replace(found.total, key="total")], shown, strict=True)
    ]
    put(show_list(lines, view, Format.TABLE))
    put(f"From {slot_words(found.start, found.end)}\n")


class _Figure(Struct, kw_only=True):
    """One step of one line."""

    start: datetime
    key: str | None
    held: float
    used: float


_FIGURE = View[_Figure](
    name=lambda figure: figure.key or "",
    columns=(
        Column("FROM", lambda figure: minute(figure.start)),
        Column("NAME", lambda figure: figure.key or "(no project)"),
        Column("HELD GPU-H", lambda figure: f"{figure.held:.2f}", right=True),
        Column("USED", lambda figure: f"{figure.used:.2f}", right=True),
    ),
    empty="Nothing was held in that time.",
)
_SERIES = View[UsageSeriesOut](name=lambda found: found.by.value, columns=())


def _show_series(found: UsageSeriesOut, output: UsageFormat) -> None:
    """Steps in which nothing was held are left out of the table."""
    if output is not UsageFormat.TABLE:
        put(show_one(found, _SERIES, Format(output.value)))
        return
    figures = [
        _Figure(start=found.start + number * found.step, key=line.key, held=held, used=used)
        for line in found.items
        for number, (held, used) in enumerate(zip(line.held_gpu_hours, line.used_gpu_hours, strict=True))
        if held
    ]
    figures.sort(key=lambda figure: figure.start)
    put(show_list(figures, _FIGURE, Format.TABLE))

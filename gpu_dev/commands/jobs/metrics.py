"""`metrics`: how a job uses its GPUs."""

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated

import typer
from msgspec import Struct

from gpu_dev.display.local_times import minute, slot_words
from gpu_dev.display.output import Column, Format, View, csv_text, show_list, show_one
from gpu_dev.display.use_graphs import NO_DATA, length_of_mark, mean_and_most, sparkline, use_line
from gpu_dev.errors import UsageError
from gpu_dev.options import JobId
from gpu_dev.session import client_for, whole_id
from gpu_dev.terminal import Rendered, clean, put
from gpu_dev.wire.nodes import GpuUseOut, UseOut
from reservation_core.domain.gpu_use.figures import error_figures, memory_figure
from reservation_core.domain.short_durations import seconds_in, written
from reservation_core.domain.time_words import rfc3339

app = typer.Typer(add_completion=False)

_LONGEST = timedelta(days=400)


class UseFormat(StrEnum):
    """How to show use: like other answers, or as CSV."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    CSV = "csv"


class _Line(Struct, kw_only=True):
    gpu: str
    gpu_type: str
    graph: str
    mean: str
    most: str
    memory: str
    power: str
    errors: str


_TABLE = View[_Line](
    name=lambda line: line.gpu,
    columns=(
        Column("GPU", lambda line: line.gpu),
        Column("TYPE", lambda line: line.gpu_type),
        Column("UTILISATION", lambda line: line.graph),
        Column("MEAN", lambda line: line.mean, right=True),
        Column("MAX", lambda line: line.most, right=True),
        Column("MEMORY MAX", lambda line: line.memory, right=True),
        Column("POWER", lambda line: line.power, right=True),
        Column("ERRORS", lambda line: line.errors),
    ),
    empty="It has had no GPU yet.",
)
_DATA = View[UseOut](name=lambda found: rfc3339(found.start), columns=())


@app.command()
def metrics(
    ctx: typer.Context,
    job_id: JobId,
    last: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only the last TIME, such as 2h (default: since its start)."),
    ] = None,
    step: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="The length of a step, such as 10s, 5m or 1h (default: about 400 steps)."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as -o json.")] = False,
    output: Annotated[UseFormat, typer.Option("--output", "-o", help="Output format.")] = UseFormat.TABLE,
) -> None:
    """Show how a job used its GPUs: utilisation over time, memory, power and errors.

    A graph has one mark for each step; · means that there are no samples. A GPU without any samples says "no data".
    """
    now = datetime.now(UTC)  # noqa: TID251 - the client has no clock port
    since = None if last is None else now - _length(last)
    begin, steps = None if since is None else rfc3339(since), None if step is None else _length(step)
    with client_for(ctx) as client:
        whole = whole_id(client, job_id)
        found = client.use.of_job(whole, since=begin, step=steps)
        if not found.gpus and client.job(whole).array is not None:
            raise UsageError(
                f"{whole} is an array, and its elements have GPUs. Name one of them, such as {whole}.0; "
                f"`gpu-dev list --elements {whole}` lists them."
            )
        if output is UseFormat.CSV and not as_json:
            put(csv_text(client.use.csv_of_job(whole, since=begin, step=steps)))
            return
    form = Format.JSON if as_json else Format(output.value)
    if since is not None and found.gpus and found.end <= since and form in (Format.TABLE, Format.WIDE):
        words = f"{whole} had its GPUs until {minute(found.end)}, which is before the last {last}."
        put(Rendered(f"{clean(words)} Leave --last out to see how it used them.\n"))
        return
    _show(whole, found, form)


def _show(job_id: str, found: UseOut, output: Format) -> None:
    if output in (Format.JSON, Format.YAML, Format.NAME):
        put(show_one(found, _DATA, output))
        return
    put(show_list([_line(found, gpu) for gpu in found.gpus], _TABLE, output))
    if not found.gpus:
        return
    if found.summary is not None:
        put(f"\nIt {use_line(found.summary)}.\n")
    length = found.end - found.start
    lasted = written(length) if length >= timedelta(seconds=1) else "less than a second"
    words = f"{job_id}: {slot_words(found.start, found.end)} ({lasted}); one mark is {written(length_of_mark(found))}."
    if found.simulated:
        words += " Simulated GPUs: the figures are from a recording, or there are none."
    put(Rendered(f"\n{clean(words)}\n"))


def _line(found: UseOut, gpu: GpuUseOut) -> _Line:
    utilisation = mean_and_most(gpu, "utilisation")
    used, power = mean_and_most(gpu, "memory_bytes"), mean_and_most(gpu, "power_w")
    return _Line(
        gpu=f"{gpu.node}/{gpu.index}",
        gpu_type=gpu.gpu_type,
        graph=sparkline(found, gpu) or NO_DATA,
        mean="" if utilisation is None else f"{utilisation.mean:.0%}",
        most="" if utilisation is None else f"{utilisation.max:.0%}",
        memory="" if used is None else memory_figure(used.max, gpu.memory_bytes),
        power="" if power is None else f"{power.mean:.0f} W",
        errors=", ".join(
            error_figures((point.xid for point in gpu.points), (point.ecc_uncorrected for point in gpu.points))
        ),
    )


def _length(text: str) -> timedelta:
    seconds = seconds_in(text)
    if seconds is None or not 1 <= seconds <= _LONGEST.total_seconds():
        raise UsageError(f"{text!r} is no such time. Write it as 30s, 5m, 2h or 7d (at most {_LONGEST.days}d).")
    return timedelta(seconds=seconds)

"""`simulate`: how long jobs would have waited under another order, other rules, or with more nodes."""

import csv
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec import Struct

from gpu_dev.display.output import Column, Format, View, show_list, show_one
from gpu_dev.errors import UsageError
from gpu_dev.session import client_for
from gpu_dev.terminal import Rendered, clean, put
from gpu_dev.wire.simulations import SimulatedCluster, SimulationCreate, SimulationOut, TraceJobIn
from reservation_core.domain.policy.nouns import QueueOrder
from reservation_core.domain.short_durations import seconds_in
from reservation_core.domain.simulation.answer_words import table
from reservation_core.domain.simulation.trace_rows import REQUIRED, TraceRow, read_row

app = typer.Typer(add_completion=False)

MOST_JOBS = 20_000
_LONGEST = timedelta(days=400)
_ONLY_TYPE = "gpu"
"""As `nodes_added` has the type of GPUs where there is only one."""


class _Line(Struct, kw_only=True):
    name: str
    today: str
    changed: str


_TABLE = View[_Line](
    name=lambda line: line.name,
    columns=(
        Column("", lambda line: line.name),
        Column("TODAY", lambda line: line.today, right=True),
        Column("CHANGED", lambda line: line.changed, right=True),
    ),
)
_DATA = View[SimulationOut](name=lambda found: found.answer, columns=())


@app.command()
def simulate(
    ctx: typer.Context,
    trace: Annotated[
        str | None,
        typer.Option(metavar="FILE", help=f"Jobs as CSV with the columns {', '.join(REQUIRED)}; see the guide."),
    ] = None,
    history: Annotated[
        str | None, typer.Option(metavar="TIME", help="The jobs of the last TIME, such as 30d (default: 90d).")
    ] = None,
    gpus: Annotated[
        int | None, typer.Option(min=1, help="Run a trace on this many GPUs (default: the server's nodes).")
    ] = None,
    node_size: Annotated[int | None, typer.Option(min=1, help="GPUs of each node, with --gpus (default: 8).")] = None,
    add_nodes: Annotated[
        int | None, typer.Option("--add-nodes", min=1, help="Change: this many more nodes like the present ones.")
    ] = None,
    gpu_type: Annotated[
        str | None, typer.Option("--type", "-t", help="The GPU type of these nodes; needed if there are several.")
    ] = None,
    order: Annotated[
        QueueOrder | None,
        typer.Option(help="Change: smaller jobs first (area), or older ones (arrival)."),
    ] = None,
    policy: Annotated[
        str | None, typer.Option(metavar="FILE", help="Change: rules in place of the present ones (TOML).")
    ] = None,
    fair_share: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Change: the half-life of fair shares, such as 7d; 0 switches them off."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as -o json.")] = False,
    output: Annotated[Format, typer.Option("--output", "-o", help="Output format.")] = Format.TABLE,
) -> None:
    """Show how long jobs would have waited with more nodes, in another order, or under other rules.

    The server plans the jobs again in virtual time, once as today and once with the changes. Without
    --trace these are your jobs of the last 90 days; administrators simulate everybody's.
    """
    asked = _jobs(trace, history, gpus, node_size)
    if gpu_type is not None and add_nodes is None:
        raise UsageError("--type is for the nodes of --add-nodes.")
    if add_nodes is not None:
        asked["nodes_added"] = {gpu_type or _ONLY_TYPE: add_nodes}
    if order is not None:
        asked["order"] = order
    if fair_share is not None:
        asked["fair_share_half_life"] = timedelta(0) if fair_share == "0" else _length(fair_share)
    if policy is not None:
        from gpu_dev.inputs.policy_files import read_policy

        asked["policy"] = read_policy(policy)
    with client_for(ctx) as client:
        found = client.simulations.simulate(SimulationCreate(**asked))
    _show(found, Format.JSON if as_json else output)


def _show(found: SimulationOut, output: Format) -> None:
    if output in (Format.JSON, Format.YAML, Format.NAME):
        put(show_one(found, _DATA, output))
        return
    rows = [("Jobs", f"{found.jobs:,}", f"{found.jobs:,}"), *table(found.today, found.changed, found.bookings)]
    lines = [_Line(name=name, today=today, changed=changed) for name, today, changed in rows]
    put(show_list(lines, _TABLE, output))
    put(Rendered("\n".join(["", clean(found.answer), *map(clean, found.left_out), ""])))


def _jobs(trace: str | None, history: str | None, gpus: int | None, node_size: int | None) -> dict[str, Any]:
    """The jobs of a request, and a trace's cluster. Raises UsageError for options that don't go together."""
    if trace is None:
        if gpus is not None or node_size is not None:
            raise UsageError("--gpus and --node-size are for --trace; a history runs on the server's nodes.")
        return {"history": _length(history or "90d")}
    if history is not None:
        raise UsageError("Give either --trace or --history.")
    if gpus is not None:
        return {"trace": _read_trace(trace), "cluster": SimulatedCluster(gpus=gpus, node_size=node_size or 8)}
    if node_size is not None:
        raise UsageError("--node-size needs --gpus.")
    return {"trace": _read_trace(trace)}


def _length(text: str) -> timedelta:
    seconds = seconds_in(text)
    if seconds is None or not 1 <= seconds <= _LONGEST.total_seconds():
        raise UsageError(f"{text!r} is not a length of time. Write it as 12h, 7d or 12w (at most {_LONGEST.days}d).")
    return timedelta(seconds=seconds)


def _read_trace(path: str) -> list[TraceJobIn]:
    """The jobs of a CSV file. Raises UsageError that names the line and the column."""
    jobs: list[TraceJobIn] = []
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as lines:
            rows = csv.DictReader(lines)
            for row in rows:
                if len(jobs) == MOST_JOBS:
                    raise UsageError(f"{path} has more than {MOST_JOBS:,} jobs. Leave out some, such as old ones.")
                jobs.append(_job(read_row(rows.line_num, row)))
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}.") from error
    except UnicodeError as error:
        raise UsageError(f"{path} is not UTF-8 text. Save it as CSV in UTF-8.") from error
    except csv.Error as error:
        raise UsageError(
            f"{path} is not CSV: a cell has no end. Look for a quotation mark without its other."
        ) from error
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from error
    if not jobs:
        raise UsageError(f"{path} has no jobs: it needs a line of the columns {', '.join(REQUIRED)}, and rows.")
    return jobs


def _job(row: TraceRow) -> TraceJobIn:
    """A row as the server takes it: what it does not say is left out."""
    given: dict[str, Any] = {"user": row.user, "project": row.project, "gpu_type": row.gpu_type}
    given = {name: value for name, value in given.items() if value}
    if row.asked is not None:
        given["asked_s"] = row.asked.total_seconds()
    if row.priority:
        given["priority"] = row.priority
    return TraceJobIn(submitted_at=row.submitted_at, duration_s=row.ran.total_seconds(), gpus=row.gpus, **given)

"""The calendar as a table: free GPUs by row and column, and the viewer's bookings."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from api_service.web.calendar.timeline_entries import SeenEntry
from api_service.web.calendar.timeline_rows import Row, free_between
from api_service.web.calendar.timeline_window import DayWindow, TimelineScale
from reservation_core.domain.calendar import to_micros
from reservation_core.domain.model import ReservationKind


@dataclass(frozen=True, slots=True)
class TimelineColumn:
    """One column. `title` is short, `words` is whole; `today`: it is, or is within, the present day."""

    title: str
    words: str
    start: datetime
    end: datetime
    today: bool


@dataclass(frozen=True, slots=True)
class Cell:
    """`free`: how many GPUs are free for the whole column, None for the past. `mine`: the viewer's bookings in it."""

    free: int | None
    mine: tuple[SeenEntry, ...]


@dataclass(frozen=True, slots=True)
class TableRow:
    row: Row
    cells: tuple[Cell, ...]


def columns(window: DayWindow, now: datetime) -> list[TimelineColumn]:
    """The columns, in order."""
    today = now.astimezone(window.zone).date()
    found = []
    for start, end in zip(window.columns, window.columns[1:], strict=False):
        local = start.astimezone(window.zone)
        day = f"{local:%a} {local.day} {local:%b}"
        title = f"{local:%H:%M}" if window.view is TimelineScale.DAY else day
        words = (
            f"{day} {local:%Y}, from {local:%H:%M}"
            if window.view is TimelineScale.DAY
            else f"{local:%A} {local.day} {local:%B %Y}"
        )
        found.append(TimelineColumn(title, words, start, end, local.date() == today))
    return found


def table(
    rows: Sequence[Row], shown: Sequence[TimelineColumn], found: Iterable[SeenEntry], now: datetime
) -> list[TableRow]:
    bounds = [to_micros(column.start) for column in shown] + [to_micros(shown[-1].end)]
    own = [entry for entry in found if entry.mine and entry.entry.kind is ReservationKind.BOOKING]
    made = []
    for row in rows:
        here = [entry for entry in own if row.id in entry.rows]
        cells = (
            Cell(
                None if column.end <= now else free,
                tuple(
                    entry
                    for entry in here
                    if entry.entry.span.start < column.end and column.start < entry.entry.span.end
                ),
            )
            for column, free in zip(shown, free_between(row.cards, bounds), strict=True)
        )
        made.append(TableRow(row, tuple(cells)))
    return made


def heat(rows: Sequence[Row], window: DayWindow, now: datetime) -> dict[str, list[tuple[str, str, int]]]:
    """For each row, runs of equal free counts: local start and end, and the count. The past is left out."""
    bounds = window.bounds(window.heat_hours)
    micros = [to_micros(bound) for bound in bounds]
    first = next((number for number, end in enumerate(bounds[1:]) if end > now), len(bounds) - 1)
    walls = [window.wall(bound) for bound in bounds[:-1]] + [f"{window.last.isoformat()}T00:00:00"]
    made: dict[str, list[tuple[str, str, int]]] = {}
    for row in rows:
        runs: list[tuple[str, str, int]] = []
        for number, free in list(enumerate(free_between(row.cards, micros)))[first:]:
            if runs and runs[-1][2] == free:
                runs[-1] = (runs[-1][0], walls[number + 1], free)
            else:
                runs.append((walls[number], walls[number + 1], free))
        made[row.id] = runs
    return made

"""The calendar as a table: free GPUs by row and column, and the viewer's bookings."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from api_service.web.calendar.timeline_entries import SeenEntry
from api_service.web.calendar.timeline_merging import SeenMerged
from api_service.web.calendar.timeline_rows import Row
from api_service.web.calendar.timeline_window import DayWindow, TimelineScale
from reservation_core.domain.statuses import ReservationKind

_MOST_NAMED = 3
"""Cells that name hundreds of bookings would make the page megabytes large."""


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
    """`free`: the smallest and the largest number of free GPUs in the column, None for the past.

    `mine`: the viewer's first bookings in it, and `more` how many follow. Where entries are merged, a booking is in the
    column in which it begins alone.
    """

    free: tuple[int, int] | None
    mine: tuple[SeenEntry, ...]
    more: int


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
    rows: Sequence[Row],
    shown: Sequence[TimelineColumn],
    found: Iterable[SeenEntry],
    merged: Sequence[SeenMerged],
    free: Mapping[str, Sequence[tuple[int, int] | None]],
) -> list[TableRow]:
    """The lines; `free` has the smallest and the largest count of each row in each column."""
    bounds = [column.start for column in shown]
    named: dict[str, list[list[SeenEntry]]] = {row.id: [[] for _ in shown] for row in rows}
    unnamed = {row.id: [0] * len(shown) for row in rows}

    def column_of(start: datetime) -> int:
        return max(0, bisect_right(bounds, start) - 1)

    for entry in found:
        if entry.mine and entry.entry.kind is ReservationKind.BOOKING:
            first = column_of(entry.entry.span.start)
            after = first + 1 if merged else bisect_left(bounds, entry.entry.span.end)
            for row_id in entry.rows:
                for here in named[row_id][first:after]:
                    here.append(entry)
    for several in merged:
        if several.mine and several.kind is ReservationKind.BOOKING:
            column = column_of(several.start)
            named[several.row][column] += several.first
            unnamed[several.row][column] += several.count - len(several.first)
    return [
        TableRow(
            row,
            tuple(
                Cell(extremes, tuple(here[:_MOST_NAMED]), max(0, len(here) - _MOST_NAMED) + more)
                for here, more, extremes in zip(named[row.id], unnamed[row.id], free[row.id], strict=True)
            ),
        )
        for row in rows
    ]

"""Merged entries of a page that has too many: those of a row that begin in one step are one, with their number."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from api_service.access.sight import Sight
from api_service.web.calendar.timeline_entries import SeenEntry, see_entries
from api_service.web.calendar.timeline_rows import Row
from api_service.web.calendar.timeline_window import DayWindow, TimelineScale
from reservation_core.domain.statuses import ReservationKind
from reservation_core.ports.bookings.bookings import EntryMerging, MergedEntries

MOST_APART = 200
"""Browsers draw no more: each takes a millisecond."""
_MOST_NAMED = 3
_NAMED_LINES = 3
_STEPS = {
    TimelineScale.DAY: (1, 2),
    TimelineScale.WEEK: (8, 12, 24),
    TimelineScale.TWO_WEEKS: (12, 24),
    TimelineScale.MONTH: (24,),
}
"""Hours: parts of the table's columns, so that no step is in two of them."""


@dataclass(frozen=True, slots=True)
class SeenMerged:
    """Merged entries as a viewer sees them, with the first few. They end at `end`, or where the next ones begin."""

    row: str
    mine: bool
    long: bool
    kind: ReservationKind
    start: datetime
    end: datetime
    count: int
    first: Sequence[SeenEntry]


def merging_of(rows: Sequence[Row], window: DayWindow, viewer: int) -> EntryMerging:
    """Steps as fine as leaves few enough merged entries on these rows."""
    for hours in _STEPS[window.view]:
        steps = window.bounds(hours)[:-1]
        cells = len(steps) * max(1, len(rows))
        if cells <= MOST_APART:
            break
    return EntryMerging(
        above=MOST_APART,
        places=[place for place, row in enumerate(rows) for _ in row.cards],
        steps=steps,
        step_length=timedelta(hours=hours),
        viewer=viewer,
        named=min(_MOST_NAMED, max(1, MOST_APART // cells)),
    )


def see_merged(
    found: Sequence[MergedEntries], rows: Sequence[Row], sight: Sight, window: DayWindow, now: datetime
) -> tuple[list[SeenEntry], list[SeenMerged]]:
    """Those that are one entry on their row, and those that are more."""
    entries = iter(see_entries((entry for merged in found for entry in merged.first), rows, sight, window, now))
    single: dict[str, tuple[SeenEntry, list[str]]] = {}
    several = []
    for merged, end in zip(found, _ends(found), strict=True):
        row = rows[merged.place].id
        first = [next(entries) for _ in merged.first]
        if merged.count == 1:
            single.setdefault(first[0].entry.id, (first[0], []))[1].append(row)
        else:
            several.append(
                SeenMerged(row, merged.mine, merged.long, merged.kind, merged.span.start, end, merged.count, first)
            )
    return [replace(entry, rows=sorted(on)) for entry, on in single.values()], several


def _ends(found: Sequence[MergedEntries]) -> list[datetime]:
    """Where each is drawn to: short ones lie beside each other in one line, and don't reach into the next."""
    following: dict[tuple[int, bool, ReservationKind], datetime] = {}
    ends = []
    for merged in reversed(found):  # they are in order of their steps
        end = merged.span.end
        if not merged.long:
            line = merged.place, merged.mine, merged.kind
            end = min(end, following.get(line, end))
            following[line] = merged.span.start
        ends.append(end)
    return ends[::-1]


def draw_merged(found: Iterable[SeenMerged], window: DayWindow) -> list[dict[str, Any]]:
    """The timeline's events; the script names them by their number. Their ids are as steady as those of entries."""
    return [_merged_event(merged, window) for merged in found]


def _merged_event(merged: SeenMerged, window: DayWindow) -> dict[str, Any]:
    kind, start = merged.kind.value, window.wall(merged.start)
    return {
        "id": " ".join(("together", merged.row, kind, f"{merged.mine:d}{merged.long:d}", start)),
        "resourceIds": [merged.row],
        "start": start,
        "end": window.wall(merged.end),
        "classNames": [kind, "mine" if merged.mine else "others", "merged"],
        "extendedProps": {
            "count": merged.count,
            "entries": [{"extendedProps": _named(entry)} for entry in merged.first],
        },
    }


def _named(entry: SeenEntry) -> dict[str, str]:
    words = {"words": "\n".join(entry.words.split("\n")[:_NAMED_LINES])}
    return words if entry.href is None else words | {"href": entry.href}

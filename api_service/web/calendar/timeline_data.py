"""Read what a calendar page shows: its rows with their free counts, and the entries on them as the viewer sees them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from api_service.access.sight import sight_of
from api_service.web.calendar.shared_rows import CalendarRows
from api_service.web.calendar.timeline_entries import SeenEntry, draw_events, see_entries
from api_service.web.calendar.timeline_merging import SeenMerged, draw_merged, merging_of, see_merged
from api_service.web.calendar.timeline_query import TimelineQuery
from api_service.web.calendar.timeline_rows import By
from api_service.web.calendar.timeline_window import DayWindow, window_of
from api_service.web.visit import Visit
from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.ports.bookings.bookings import CalendarEntries

_MOST_DRAWN = 1000
"""With more entries on a page only the viewer's are drawn: those of others are in the free counts."""


@dataclass(frozen=True, slots=True)
class Shown:
    """The contents of the page. `crowded`: too many entries to draw; those of other users are only counted."""

    asked: TimelineQuery
    window: DayWindow
    now: datetime
    rows: CalendarRows
    found: Sequence[SeenEntry]
    merged: Sequence[SeenMerged]
    crowded: bool

    def as_json(self) -> dict[str, Any]:
        """The data of the timeline's script. Times are local, without an offset."""
        window, rows = self.window, self.rows.page.rows
        return {
            "view": window.view,
            "by": self.rows.by,
            "first": window.first.isoformat(),
            "days": len(window.days),
            "zone": window.zone.key,
            "offset": _offset(self.now, window),
            "now": window.wall(self.now),
            "rows": [
                {"id": row.id, "title": row.title, "detail": row.detail, "type": row.gpu_type, "node": row.node}
                for row in rows
            ],
            "cards": {row.id: len(row.cards) for row in rows},
            "free": {} if self.rows.by is By.CARD else self.rows.runs,
            "events": draw_events(self.found, window) + draw_merged(self.merged, window),
            "crowded": self.crowded,
        }


async def read_calendar(visit: Visit, asked: TimelineQuery) -> Shown:
    """Read the page's contents: the rows as all see them, and then the entries in a transaction."""
    window = window_of(asked.view, asked.day, visit.zone)
    rows = await visit.calendars.rows(asked, window)
    page = rows.page.rows
    cards = [card.gpu_id for row in page for card in row.cards]
    viewer = visit.principal.user_id
    merging = merging_of(page, window, viewer)

    async def read(uow: UnitOfWork) -> Shown:
        async def entries_of(only_of: int | None) -> CalendarEntries:
            return await uow.bookings.entries(window.start, window.end, cards, only_of=only_of, merging=merging)

        now = await uow.now()
        crowded = sum(row.ranges for row in page) > _MOST_DRAWN
        entries = await entries_of(viewer if crowded else None)
        if not crowded and entries.count > _MOST_DRAWN:  # the past has no ranges
            crowded, entries = True, await entries_of(viewer)
        sight = await sight_of(uow, visit.principal, visit.services.settings.holders)
        single, merged = see_merged(entries.merged, page, sight, window, now)
        return Shown(
            asked=asked,
            window=window,
            now=now,
            rows=rows,
            found=see_entries(entries.single, page, sight, window, now) + single,
            merged=merged,
            crowded=crowded,
        )

    return await visit.services.reads(read)


def _offset(now: datetime, window: DayWindow) -> str:
    """The zone's present offset from UTC, such as `+01:00`."""
    minutes = (now.astimezone(window.zone).utcoffset() or timedelta(0)) // timedelta(minutes=1)
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"

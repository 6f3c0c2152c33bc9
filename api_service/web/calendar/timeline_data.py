"""Read what a calendar page shows: all GPUs for the free counts, and the entries on the page's rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from api_service.access.sight import sight_of
from api_service.web import words
from api_service.web.calendar.free_runs import FreeCounts, free_counts, on_wall, runs_of
from api_service.web.calendar.timeline_entries import SeenEntry, draw_events, see_entries
from api_service.web.calendar.timeline_query import TimelineQuery
from api_service.web.calendar.timeline_rows import By, RowPage, page_of, rows_of, usual_rows
from api_service.web.calendar.timeline_window import DayWindow, window_of
from api_service.web.visit import Visit
from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.bookings.card_choice import BookableGpu
from reservation_core.domain.calendar import to_micros
from reservation_core.ports.bookings.bookings import CalendarEntry
from reservation_core.usecases.bookings.view_calendar import calendar_cards, calendar_entries

_MOST_DRAWN = 1000
"""With more entries on a page only the viewer's are drawn, and of these no more either: browsers would be slow."""
_MOST_RUNS = 4000
"""The free counts of a page. With more changes, short runs of different counts become one."""


@dataclass(frozen=True, slots=True)
class Shown:
    """The contents of the page.

    `free`: the free counts of each row. `crowded`: too many entries to draw; those of other users are only counted.
    `drawn_until`: of the viewer's own, those that begin then or later are not drawn. `types` and `nodes` are all that
    can be chosen.
    """

    asked: TimelineQuery
    by: By
    window: DayWindow
    now: datetime
    rows: RowPage
    free: Mapping[str, FreeCounts]
    found: Sequence[SeenEntry]
    crowded: bool
    drawn_until: datetime | None
    types: Sequence[str]
    nodes: Sequence[str]

    def as_json(self) -> dict[str, Any]:
        """The data of the timeline's script. Times are local, without an offset."""
        window, rows = self.window, self.rows.rows
        most = _MOST_RUNS // max(1, len(rows))
        counts = (
            {} if self.by is By.CARD else {row.id: on_wall(runs_of(self.free[row.id], most), window) for row in rows}
        )
        return {
            "view": window.view,
            "by": self.by,
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
            "free": counts,
            "events": draw_events(self.found, window),
            "crowded": self.crowded,
            "drawnUntil": None
            if self.drawn_until is None
            else words.zoned_clock(self.drawn_until, window.zone, self.now),
        }


async def read_calendar(visit: Visit, asked: TimelineQuery) -> Shown:
    """Read the page's contents in one transaction."""
    window = window_of(asked.view, asked.day, visit.zone)

    async def read(uow: UnitOfWork) -> Shown:
        known = await calendar_cards(uow, window.start, window.end)
        chosen = [card for card in known.cards if _is_asked_for(card, asked)]
        by = asked.by or usual_rows(chosen)
        page = page_of(rows_of(chosen, by), by, asked.page)
        crowded = sum(row.ranges for row in page.rows) > _MOST_DRAWN
        cards = [card.gpu_id for row in page.rows for card in row.cards]

        async def entries_of(only_of: int | None) -> list[CalendarEntry]:
            return await calendar_entries(uow, window.start, window.end, cards, only_of, _MOST_DRAWN + 1)

        entries = [] if crowded else await entries_of(None)
        if crowded or len(entries) > _MOST_DRAWN:  # the past has no ranges
            crowded, entries = True, await entries_of(visit.principal.user_id)
        sight = await sight_of(uow, visit.principal, visit.services.settings.holders)
        return Shown(
            asked=asked,
            by=by,
            window=window,
            now=known.now,
            rows=page,
            free={
                row.id: free_counts(row.cards, to_micros(max(window.start, known.now)), to_micros(window.end))
                for row in page.rows
            },
            found=see_entries(entries[:_MOST_DRAWN], page.rows, sight, window, known.now),
            crowded=crowded,
            drawn_until=entries[_MOST_DRAWN].span.start if len(entries) > _MOST_DRAWN else None,
            types=sorted({card.gpu_type for card in known.cards}),
            nodes=sorted({card.node for card in known.cards}),
        )

    return await visit.services.reads(read)


def _is_asked_for(card: BookableGpu, asked: TimelineQuery) -> bool:
    return asked.gpu_type in (None, card.gpu_type) and asked.node in (None, card.node)


def _offset(now: datetime, window: DayWindow) -> str:
    """The zone's present offset from UTC, such as `+01:00`."""
    minutes = (now.astimezone(window.zone).utcoffset() or timedelta(0)) // timedelta(minutes=1)
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"

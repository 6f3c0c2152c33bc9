"""The rows of a calendar page with their free counts: read once for everybody who looks at the same view.

Nothing in it depends on a viewer: entries, names and ownership are read for each request.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from api_service.web.calendar.free_runs import FreeRun, extremes_between, free_counts, on_wall, runs_of
from api_service.web.calendar.timeline_query import TimelineQuery
from api_service.web.calendar.timeline_rows import By, Row, RowPage, page_of, rows_of, usual_rows
from api_service.web.calendar.timeline_window import DayWindow
from api_service.web.fleet.fleet_reading import OLDEST
from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.bookings.card_choice import BookableGpu
from reservation_core.domain.calendar import to_micros
from reservation_core.ports.clock import Clock
from reservation_core.runtime.reading.reading import Reads
from reservation_core.runtime.reading.shared_reading import SharedReading
from reservation_core.usecases.bookings.view_calendar import CalendarCards, calendar_cards

MOST_VIEWS = 16
"""So many views are kept: that of a month on thousands of GPUs takes a megabyte."""
_MOST_RUNS = 4000
"""The free counts of a page. With more changes, short runs of different counts become one."""


@dataclass(frozen=True, slots=True)
class CalendarRows:
    """One page of rows. `types` and `nodes` are all that can be chosen.

    `runs`: each row's free counts by the clock on the wall. `extremes`: the smallest and the largest count in each of
    the window's columns, None for the past.
    """

    by: By
    page: RowPage
    runs: Mapping[str, Sequence[FreeRun]]
    extremes: Mapping[str, Sequence[tuple[int, int] | None]]
    types: Sequence[str]
    nodes: Sequence[str]


def rows_for(known: CalendarCards, asked: TimelineQuery, window: DayWindow) -> CalendarRows:
    """The requested page of rows; counts begin at the moment of `known`."""
    chosen = [card for card in known.cards if _is_asked_for(card, asked)]
    by = asked.by or usual_rows(chosen)
    page = page_of(rows_of(chosen, by), by, asked.page)
    start, end = to_micros(max(window.start, known.now)), to_micros(window.end)
    counts = {row.id: free_counts(row.cards, start, end) for row in page.rows}
    most = _MOST_RUNS // max(1, len(page.rows))
    bounds = [to_micros(column) for column in window.columns]
    return CalendarRows(
        by=by,
        page=replace(page, rows=tuple(_without_ranges(row) for row in page.rows)),
        runs={row: on_wall(runs_of(found, most), window) for row, found in counts.items()},
        extremes={row: extremes_between(found, bounds) for row, found in counts.items()},
        types=sorted({card.gpu_type for card in known.cards}),
        nodes=sorted({card.node for card in known.cards}),
    )


def _is_asked_for(card: BookableGpu, asked: TimelineQuery) -> bool:
    return asked.gpu_type in (None, card.gpu_type) and asked.node in (None, card.node)


def _without_ranges(row: Row) -> Row:
    """The row without what took the memory of its counts."""
    return replace(row, cards=tuple(replace(card, busy=()) for card in row.cards))


class CalendarReader:
    """The rows of views as they are now: read only after a change, and once for all concurrent requests."""

    def __init__(self, reads: Reads, clock: Clock) -> None:
        self._reads = reads
        self._clock = clock
        self._views: OrderedDict[object, _View] = OrderedDict()

    async def rows(self, asked: TimelineQuery, window: DayWindow) -> CalendarRows:
        """The rows with all that was committed before this call. Raises DatabaseUnavailableError."""
        key = (window, asked.by, asked.gpu_type, asked.node, asked.page)
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = _View(self._reads, self._clock, asked, window)
            if len(self._views) > MOST_VIEWS:
                self._views.popitem(last=False)  # who waits for it has it
        self._views.move_to_end(key)
        return await view.reading()

    async def close(self) -> None:
        """Cancel running reads."""
        for view in self._views.values():
            await view.reading.close()


class _View:
    """One view, and the record's standing with which it was read."""

    def __init__(self, reads: Reads, clock: Clock, asked: TimelineQuery, window: DayWindow) -> None:
        self.reading = SharedReading(self._read)
        self._reads = reads
        self._clock = clock
        self._asked = asked
        self._window = window
        self._read_at: datetime | None = None
        self._standing: tuple[object, ...] = ()
        self._rows: CalendarRows | None = None

    async def _read(self) -> CalendarRows:
        now = self._clock.now()
        known = None if self._read_at is None or now - self._read_at >= OLDEST else self._rows
        standing, rows = await self._reads(lambda uow: self._read_within(uow, known))
        if rows is not known:
            self._read_at, self._standing, self._rows = now, standing, rows
        return rows

    async def _read_within(
        self, uow: UnitOfWork, known: CalendarRows | None
    ) -> tuple[tuple[object, ...], CalendarRows]:
        standing = await uow.events.standing()
        if known is not None and standing == self._standing:
            return standing, known
        cards = await calendar_cards(uow, self._window.start, self._window.end)
        return standing, rows_for(cards, self._asked, self._window)

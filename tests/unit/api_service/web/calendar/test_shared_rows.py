"""Views of the calendar: one read for everybody who looks at the same, and none that is older than a change."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import fields, replace
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast
from zoneinfo import ZoneInfo

import pytest

from api_service.web.calendar.shared_rows import MOST_VIEWS, CalendarReader, CalendarRows
from api_service.web.calendar.timeline_query import TimelineQuery
from api_service.web.calendar.timeline_rows import By
from api_service.web.calendar.timeline_window import TimelineScale, window_of
from api_service.web.fleet.fleet_reading import OLDEST
from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.bookings.card_choice import LedgerGpu
from reservation_core.domain.calendar import Range, to_micros
from reservation_core.ports.transactions import DatabaseUnavailableError
from tests.virtual_time import run_virtually

NOW = datetime(2030, 3, 4, 10, tzinfo=UTC)
HOUR = timedelta(hours=1)
WEEK = TimelineQuery(TimelineScale.WEEK, By.NODE, date(2030, 3, 4), None, None, 1, as_table=False)
TAKEN = (to_micros(NOW + HOUR), to_micros(NOW + 3 * HOUR))


class Database:
    """GPUs and how often they are read; each read takes a tenth of a second."""

    def __init__(self) -> None:
        self.busy: list[Range] = []
        self.recorded = 0
        self.moment = NOW
        self.away = False
        self.reads = 0

    def now(self) -> datetime:
        return self.moment

    def book(self) -> None:
        """A GPU is taken, and that is recorded."""
        self.busy = [TAKEN]
        self.recorded += 1

    async def do(self, work: Callable[[UnitOfWork], Awaitable[Any]]) -> Any:
        if self.away:
            raise DatabaseUnavailableError("away")
        return await work(cast("UnitOfWork", SimpleNamespace(events=self, bookings=self, now=self._now)))

    async def standing(self) -> tuple[object, ...]:
        return (self.recorded,)

    async def cards(self, _start: datetime, _end: datetime) -> list[LedgerGpu]:
        self.reads += 1
        busy = self.busy
        await asyncio.sleep(0.1)
        gpus = [("rhea", "a100"), ("titan", "h100"), ("titan", "h100")]
        return [
            LedgerGpu(number, node, number, gpu_type, True, True, False, busy if number == 1 else [])
            for number, (node, gpu_type) in enumerate(gpus)
        ]

    async def _now(self) -> datetime:
        return self.moment


Look = Callable[..., Awaitable[CalendarRows]]


def _virtually(story: Callable[[Look, Database], Awaitable[None]]) -> None:
    async def told() -> None:
        database = Database()
        reader = CalendarReader(cast("Any", database.do), database)

        async def look(asked: TimelineQuery = WEEK, zone: str = "UTC") -> CalendarRows:
            return await reader.rows(asked, window_of(asked.view, asked.day, ZoneInfo(zone)))

        try:
            await story(look, database)
        finally:
            await reader.close()

    run_virtually(told())


def least(rows: CalendarRows, row: str = "titan") -> int:
    return min(run.least for run in rows.runs[row])


def test_all_who_look_at_a_view_share_one_read() -> None:
    async def story(look: Look, database: Database) -> None:
        found = await asyncio.gather(*(look() for _ in range(100)))
        assert len({id(rows) for rows in found}) == 1
        # A page as a table has the same rows.
        assert await look(replace(WEEK, as_table=True)) is found[0]
        assert database.reads == 1

    _virtually(story)


def test_nobody_sees_counts_from_before_a_change_though_a_read_is_under_way() -> None:
    async def story(look: Look, database: Database) -> None:
        early = asyncio.ensure_future(look())
        while not database.reads:
            await asyncio.sleep(0)
        database.book()
        late = await asyncio.gather(*(look() for _ in range(10)))
        assert least(await early) == 2
        assert [least(rows) for rows in late] == [1] * 10
        assert database.reads == 2

    _virtually(story)


def test_a_view_is_read_again_after_a_change_and_after_some_time() -> None:
    async def story(look: Look, database: Database) -> None:
        first = await look()
        database.moment += OLDEST - timedelta(seconds=1)
        assert await look() is first
        database.book()
        second = await look()
        assert (least(first), least(second), database.reads) == (2, 1, 2)
        database.busy = []  # without an event: time alone ends things
        database.moment += OLDEST
        assert (least(await look()), database.reads) == (2, 3)

    _virtually(story)


@pytest.mark.parametrize(
    "other",
    [
        {"view": TimelineScale.MONTH},
        {"by": By.CARD},
        {"by": By.TYPE},
        {"by": None},
        {"day": date(2030, 3, 5)},
        {"gpu_type": "h100"},
        {"node": "rhea"},
        {"zone": "Asia/Kolkata"},
    ],
    ids=str,
)
def test_what_is_asked_otherwise_is_another_view(other: dict[str, Any]) -> None:
    async def story(look: Look, database: Database) -> None:
        database.book()
        usual = await look()
        zone = other.get("zone", "UTC")
        changes = {name: value for name, value in other.items() if name != "zone"}
        found = await look(replace(WEEK, **changes), zone)
        assert found != usual
        assert database.reads == 2
        assert (await look(), await look(replace(WEEK, **changes), zone), database.reads) == (usual, found, 2)

    _virtually(story)


def test_so_many_views_are_kept_as_fit() -> None:
    async def story(look: Look, database: Database) -> None:
        days = [replace(WEEK, day=WEEK.day + timedelta(days=number)) for number in range(MOST_VIEWS + 1)]
        for asked in days:
            await look(asked)
        await look(days[-1])
        await look(days[1])
        assert database.reads == MOST_VIEWS + 1
        await look(days[0])
        assert database.reads == MOST_VIEWS + 2

    _virtually(story)


def test_a_database_that_is_away_is_said_and_asked_again() -> None:
    async def story(look: Look, database: Database) -> None:
        await look()
        database.away = True
        with pytest.raises(DatabaseUnavailableError):
            await look()
        database.away = False
        assert least(await look()) == 2

    _virtually(story)


def test_no_ranges_are_kept_with_the_rows() -> None:
    async def story(look: Look, database: Database) -> None:
        database.book()
        rows = await look()
        [_, titan] = rows.page.rows
        assert (titan.ranges, [card.busy for card in titan.cards]) == (1, [(), ()])
        assert {field.name for field in fields(rows)} == {"by", "page", "runs", "extremes", "types", "nodes"}

    _virtually(story)

"""Merged entries of the calendar's pages: the steps they begin in, and how they are drawn."""

from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from api_service.access.sight import Sight
from api_service.web.calendar.timeline_merging import MOST_APART, draw_merged, merging_of, see_merged
from api_service.web.calendar.timeline_rows import By, rows_of
from api_service.web.calendar.timeline_table import columns, table
from api_service.web.calendar.timeline_window import TimelineScale, window_of
from reservation_core.domain.bookings.asked_slots import Span
from reservation_core.domain.statuses import ReservationKind
from reservation_core.ports.bookings.bookings import CalendarEntry, MergedEntries
from tests.unit.api_service.web.calendar.test_timeline import ALICE, BERLIN, HOUR, NOW, card, entry

UTC_ZONE = ZoneInfo("UTC")
MIDNIGHT = datetime(2030, 3, 5, tzinfo=UTC)
ROWS = rows_of([card(0, "n0"), card(1, "n1")], By.NODE)
WEEK = window_of(TimelineScale.WEEK, MIDNIGHT.date(), UTC_ZONE)


def merged(
    count: int, start: int, end: int, *first: CalendarEntry, place: int = 0, mine: bool = True, long: bool = False
) -> MergedEntries:
    """Bookings between two hours."""
    span = Span(MIDNIGHT + start * HOUR, MIDNIGHT + end * HOUR)
    return MergedEntries(place, mine, long, ReservationKind.BOOKING, count, span, first)


@pytest.mark.parametrize("view", list(TimelineScale))
@pytest.mark.parametrize("rows", [1, 4, 12, 32])
def test_steps_are_parts_of_columns_and_as_fine_as_is_drawn(view: TimelineScale, rows: int) -> None:
    shown = rows_of([card(number, f"n{number:02}") for number in range(rows)], By.NODE)
    for first in (datetime(2030, 3, 28, tzinfo=UTC), datetime(2030, 10, 27, tzinfo=UTC)):
        window = window_of(view, first.date(), BERLIN)
        how = merging_of(shown, window, viewer=1)
        assert {*window.columns[:-1]} <= {*how.steps}
        assert (how.steps[0], how.above, how.places) == (window.start, MOST_APART, list(range(rows)))
        cells = len(how.steps) * rows
        assert cells <= MOST_APART or [*how.steps, window.end] == window.columns
        assert 1 <= how.named <= 3
        assert how.named == 1 or how.named * cells <= MOST_APART
        usual = [after - before for before, after in pairwise([*how.steps, window.end])]
        assert how.step_length in usual


def test_what_is_alone_on_a_row_is_an_entry_and_on_two_rows_one() -> None:
    both = entry(id="bkg-1", gpu_ids=(0, 1))
    here = entry(id="bkg-2", gpu_ids=(0, 1))
    found = [
        merged(1, 0, 2, both),
        merged(1, 0, 2, both, place=1),
        merged(1, 24, 26, here),
        merged(7, 24, 28, here, place=1),
    ]
    single, several = see_merged(found, ROWS, Sight(ALICE), WEEK, NOW)
    assert [(alone.entry.id, alone.rows) for alone in single] == [("bkg-1", ["n0", "n1"]), ("bkg-2", ["n0"])]
    assert [(more.row, more.count, [named.entry.id for named in more.first]) for more in several] == [
        ("n1", 7, ["bkg-2"])
    ]


def test_short_ones_end_where_the_next_begin_and_long_ones_where_they_end() -> None:
    found = [
        merged(2, 20, 30, entry()),
        merged(3, 21, 90, entry(), long=True),
        merged(4, 22, 31, entry(2), mine=False),
        merged(5, 25, 50, entry()),
        merged(6, 26, 60, entry(), place=1),
    ]
    _, several = see_merged(found, ROWS, Sight(ALICE), WEEK, NOW)
    assert [(more.count, (more.end - MIDNIGHT) / HOUR) for more in several] == [
        (2, 25),
        (3, 90),
        (4, 31),
        (5, 50),
        (6, 60),
    ]


def test_an_event_has_its_number_and_says_of_others_no_more_than_may_be_seen() -> None:
    found = [merged(40, 1, 5, entry()), merged(2, 1, 5, entry(2), mine=False)]
    _, several = see_merged(found, ROWS, Sight(ALICE), WEEK, NOW)
    mine, others = draw_merged(several, WEEK)
    assert (mine["classNames"], mine["extendedProps"]["count"]) == (["booking", "mine", "merged"], 40)
    assert (mine["start"], mine["end"]) == ("2030-03-05T01:00:00", "2030-03-05T05:00:00")
    [named] = mine["extendedProps"]["entries"]
    assert named["extendedProps"]["href"] == "/bookings/bkg-1"
    assert len(named["extendedProps"]["words"].splitlines()) == 3
    assert others["classNames"] == ["booking", "others", "merged"]
    assert others["extendedProps"]["entries"] == [
        {"extendedProps": {"words": "Booked by another user\n1 GPU\n11:20 to 13:20"}}
    ]
    assert mine["id"] != others["id"]


def test_the_table_counts_each_of_ones_own_bookings_once() -> None:
    firsts = [entry(id=f"bkg-{number}") for number in range(3)]
    alone = entry(id="bkg-9", start=MIDNIGHT + 20 * HOUR, hours=30)
    found = [
        merged(1, 20, 50, alone, long=True),
        merged(5, 21, 23, *firsts),
        merged(9, 22, 26, entry(2), mine=False),
        merged(40, 24, 60, firsts[0]),
    ]
    single, several = see_merged(found, ROWS, Sight(ALICE), WEEK, NOW)
    free = {row.id: [None] * 7 for row in ROWS}
    here, there = table(ROWS, columns(WEEK, NOW), single, several, free)
    assert [(len(cell.mine), cell.more) for cell in here.cells] == [(3, 3), (1, 39), *[(0, 0)] * 5]
    assert [cell.more for cell in there.cells] == [0] * 7

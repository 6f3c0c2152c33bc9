"""The calendar's pure parts: windows in time zones, rows, free counts, and what somebody sees of others."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api_service.access.sight import Sight
from api_service.problems import ProblemError
from api_service.web.calendar.free_runs import extremes_between, free_counts
from api_service.web.calendar.timeline_entries import SeenEntry, draw_events, see_entries
from api_service.web.calendar.timeline_query import TimelineQuery, read_query
from api_service.web.calendar.timeline_rows import By, Row, page_of, rows_of, usual_rows
from api_service.web.calendar.timeline_table import columns, table
from api_service.web.calendar.timeline_window import DayWindow, TimelineScale, window_of
from reservation_core.domain.bookings.asked_slots import Span
from reservation_core.domain.bookings.card_choice import BookableGpu
from reservation_core.domain.calendar import to_micros
from reservation_core.domain.statuses import ReservationKind, Role
from reservation_core.ports.bookings.bookings import CalendarEntry
from reservation_core.ports.people.identities import Principal

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2030, 3, 4, 10, 20, tzinfo=UTC)
ALICE = Principal(1, "alice", Role.USER, "tok-1", None)
ROOT = Principal(9, "root", Role.ADMIN, "tok-9", None)
HOUR = timedelta(hours=1)


def card(gpu_id: int, node: str = "titan", gpu_type: str = "h100", *busy: tuple[int, int]) -> BookableGpu:
    return BookableGpu(gpu_id, node, gpu_id, gpu_type, True, tuple(busy))


def entry(owner: int = 1, *, start: datetime = NOW + HOUR, hours: float = 2, **other: object) -> CalendarEntry:
    fields: dict[str, object] = {
        "id": "bkg-1",
        "kind": ReservationKind.BOOKING,
        "status": "confirmed",
        "planned": False,
        "user_id": owner,
        "user": {1: "alice", 2: "bob"}[owner],
        "title": "secret plans",
        "gpus": 1,
        "nodes": 1,
        "span": Span(start, start + timedelta(hours=hours)),
        "series_id": None,
        "gpu_ids": (0,),
    }
    return CalendarEntry(**{**fields, **other})  # type: ignore[arg-type]


def extremes(row: Row, window: DayWindow) -> list[tuple[int, int] | None]:
    counts = free_counts(row.cards, to_micros(NOW), to_micros(window.end))
    return extremes_between(counts, [to_micros(bound) for bound in window.columns])


def look(
    found: CalendarEntry, sight: Sight | None = None, cards: Sequence[BookableGpu] | None = None, by: By = By.NODE
) -> SeenEntry:
    rows = rows_of(cards or [card(0), card(1)], by)
    window = window_of(TimelineScale.WEEK, NOW.date(), BERLIN)
    return see_entries([found], rows, sight or Sight(ALICE), window, NOW)[0]


@pytest.mark.parametrize(
    ("kind", "status", "owner", "shown"),
    [
        (ReservationKind.BOOKING, "confirmed", 1, "booked"),
        (ReservationKind.BOOKING, "confirmed", 2, "booked"),
        (ReservationKind.BOOKING, "offered", 1, "offered to you"),
        (ReservationKind.BOOKING, "offered", 2, "offered"),
        (ReservationKind.BOOKING, "active", 2, "now"),
        (ReservationKind.MAINTENANCE, "confirmed", 2, "planned"),
        (ReservationKind.MAINTENANCE, "active", 2, "open"),
        (ReservationKind.JOB, "running", 2, "running"),
    ],
)
def test_a_card_says_the_status_as_lists_do(kind: ReservationKind, status: str, owner: int, shown: str) -> None:
    assert shown in look(entry(owner, kind=kind, status=status)).words.split("\n")


def test_a_running_job_is_over_when_its_time_is_though_its_gpus_are_kept_for_its_pod_to_end() -> None:
    begun, end = NOW - HOUR, NOW + HOUR
    seen = look(
        entry(kind=ReservationKind.JOB, status="running", start=begun, hours=2, job_end=end - timedelta(seconds=10))
    )
    assert [line for line in seen.words.splitlines() if " to " in line] == ["10:20 to 12:19"]
    assert seen.words.splitlines()[-1].startswith("1 h 59 min on ")


# == Windows ==


@pytest.mark.parametrize(("view", "days"), [("day", 1), ("week", 7), ("2weeks", 14), ("month", 30)])
def test_a_window_has_whole_days_and_follows_the_one_before(view: str, days: int) -> None:
    window = window_of(TimelineScale(view), date(2030, 1, 31), BERLIN)
    assert len(window.days) == days
    assert window.moved(1) == window.last
    assert window_of(window.view, window.moved(-1), BERLIN).last == window.first


def test_the_administrator_who_plans_maintenance_does_not_hold_its_gpus() -> None:
    seen = look(entry(kind=ReservationKind.MAINTENANCE, status="active", start=NOW - HOUR))
    assert (seen.mine, seen.label, seen.movable, seen.extendable) == (False, "maintenance", False, False)


def test_a_card_says_the_day_of_a_range_once() -> None:
    seen = look(entry(start=NOW + 25 * HOUR, hours=2))
    assert [line for line in seen.words.splitlines() if " to " in line] == ["Tue 5 Mar 12:20 to 14:20"]


def test_days_begin_at_midnight_and_are_as_long_as_clocks_make_them() -> None:
    """In Berlin clocks went forward on 31 March 2030, and back on 27 October."""
    short = window_of(TimelineScale.DAY, date(2030, 3, 31), BERLIN)
    long = window_of(TimelineScale.DAY, date(2030, 10, 27), BERLIN)
    assert (short.end - short.start, long.end - long.start) == (23 * HOUR, 25 * HOUR)
    week = window_of(TimelineScale.WEEK, date(2030, 3, 28), BERLIN).bounds(24)
    assert [moment.astimezone(BERLIN).hour for moment in week] == [0] * 8
    # The hour that there is not is no step; the one that comes twice is one of two hours.
    assert [b - a for a, b in pairwise(short.bounds(1))] == [HOUR] * 23
    steps = long.bounds(1)
    assert [b - a for a, b in pairwise(steps)].count(2 * HOUR) == 1


def test_a_day_that_begins_at_one_begins_when_it_begins() -> None:
    """In Beirut clocks go forward at midnight."""
    window = window_of(TimelineScale.DAY, date(2030, 3, 31), ZoneInfo("Asia/Beirut"))
    assert window.start == datetime(2030, 3, 30, 22, tzinfo=UTC)
    assert window.end - window.start == 23 * HOUR


@given(st.dates(date(1990, 1, 1), date(2300, 1, 1)), st.sampled_from(list(TimelineScale)), st.sampled_from([-1, 0, 1]))
def test_any_day_has_a_window_and_steps_in_order(day: date, view: TimelineScale, by: int) -> None:
    window = window_of(view, window_of(view, day, BERLIN).moved(by), BERLIN)
    bounds = window.columns
    assert bounds == sorted(set(bounds))
    assert (bounds[0], bounds[-1]) == (window.start, window.end)


# == Rows ==


def test_rows_are_types_nodes_or_cards_and_come_in_pages() -> None:
    cards = [card(number, f"n{number % 50:02}", "h100" if number % 2 else "a100") for number in range(200)]
    assert [row.id for row in rows_of(cards, By.TYPE)] == ["a100", "h100"]
    nodes = rows_of(cards, By.NODE)
    assert [row.id for row in nodes] == [f"n{number:02}" for number in range(50)]
    pages = [page_of(nodes, By.NODE, number).rows for number in range(1, 6)]
    assert [row for page in pages for row in page] == nodes
    assert page_of(nodes, By.NODE, 99).number == 5
    assert page_of([], By.NODE, 1).pages == 1
    assert len(rows_of(cards, By.CARD)) == 200


def test_a_row_of_a_gpu_that_is_out_of_use_says_so() -> None:
    cards = [card(0), replace(card(1), available=False)]
    assert [row.detail for row in rows_of(cards, By.CARD)] == ["h100", "out of use"]
    assert [row.detail for row in rows_of(cards, By.NODE)] == ["2 × h100"]


@pytest.mark.parametrize(("cards", "nodes", "by"), [(4, 1, By.CARD), (17, 2, By.NODE), (1000, 125, By.TYPE)])
def test_rows_are_as_fine_as_is_readable(cards: int, nodes: int, by: By) -> None:
    assert usual_rows([card(number, f"n{number % nodes}") for number in range(cards)]) is by


# == What somebody sees ==


def test_of_others_nobody_sees_more_than_that_it_is_taken() -> None:
    found = look(entry(2))
    assert (found.label, found.href, found.movable, found.extendable) == ("taken", None, False, False)
    assert "bob" not in found.words
    assert "secret" not in found.words
    fellow = look(entry(2), Sight(ALICE, {2: "bob"}))
    assert (fellow.label, fellow.href, fellow.movable) == ("bob", None, False)
    assert "secret" not in fellow.words
    # Administrators see whose it is and look at it, but drag nobody else's.
    admin = look(entry(2), Sight(ROOT))
    assert (admin.href, admin.movable, admin.extendable) == ("/bookings/bkg-1", False, False)


@pytest.mark.parametrize("kind", list(ReservationKind))
def test_no_kind_tells_more_of_others(kind: ReservationKind) -> None:
    found = look(entry(2, kind=kind))
    assert "bob" not in found.label + found.words
    assert "secret" not in found.label + found.words
    assert found.href is None


def test_ones_own_can_be_dragged_as_far_as_it_has_not_begun_or_ended() -> None:
    ahead = look(entry())
    assert (ahead.label, ahead.href, ahead.movable, ahead.extendable) == ("secret plans", "/bookings/bkg-1", True, True)
    begun = look(entry(start=NOW - HOUR, status="active"))
    assert (begun.movable, begun.extendable) == (False, True)
    over = look(entry(start=NOW - 3 * HOUR, status="ended"))
    assert (over.movable, over.extendable) == (False, False)
    offered = look(entry(status="offered"))
    assert (offered.movable, offered.extendable) == (False, False)
    job = look(entry(id="job-1", kind=ReservationKind.JOB, status="running"))
    assert (job.href, job.movable, job.extendable) == ("/jobs/job-1", False, False)


def test_what_has_no_gpu_on_a_row_is_not_drawn() -> None:
    window = window_of(TimelineScale.WEEK, NOW.date(), BERLIN)
    cards = [card(0), card(1), card(2, "rhea"), card(3, "rhea")]

    def drawn(**fields: object) -> list[list[str]]:
        made = see_entries([entry(**fields)], rows_of(cards, By.NODE), Sight(ALICE), window, NOW)  # type: ignore[arg-type]
        return [event["resourceIds"] for event in draw_events(made, window)]

    assert drawn(kind=ReservationKind.MAINTENANCE, gpu_ids=(0, 1, 2)) == [["rhea", "titan"]]
    assert drawn(gpu_ids=(77,)) == []


def test_an_entry_says_where_it_is_and_how_long() -> None:
    cards = [card(number, f"n{number // 2}") for number in range(10)]
    found = look(entry(gpus=2, nodes=5, gpu_ids=tuple(range(1, 10))), cards=cards)
    assert found.words.split("\n") == [
        "Your booking secret plans",
        "10 GPUs",
        "12:20 to 14:20",
        "booked",
        "2 h on n0: GPU 1; n1: GPUs 2, 3; n2: GPUs 4, 5; 2 more nodes",
    ]


def test_an_entry_says_that_some_of_its_gpus_are_on_no_shown_row() -> None:
    found = look(entry(gpus=3, gpu_ids=(0, 1, 77)))
    assert found.words.endswith("2 h on titan: GPUs 0, 1 and more that are not shown here")


def test_an_hour_that_comes_twice_is_drawn_all_the_same() -> None:
    """Half past two to half past two: an hour by the instants, none by the clock on the wall."""
    start = datetime(2030, 10, 27, 0, 30, tzinfo=UTC)
    rows = rows_of([card(0)], By.NODE)
    window = window_of(TimelineScale.DAY, date(2030, 10, 27), BERLIN)
    found = see_entries([entry(start=start, hours=1)], rows, Sight(ALICE), window, NOW)
    [event] = draw_events(found, window)
    assert (event["start"], event["end"]) == ("2030-10-27T02:30:00", "2030-10-27T02:45:00")


# == The table ==


def test_the_table_has_free_counts_and_ones_own_bookings() -> None:
    window = window_of(TimelineScale.WEEK, NOW.date(), BERLIN)
    start = window.start + timedelta(days=1, hours=5)
    taken = (to_micros(start), to_micros(start + 30 * HOUR))
    rows = rows_of([card(0, "titan", "h100", taken), card(1)], By.NODE)
    mine, other = entry(start=start, hours=30), entry(2, id="bkg-2", start=start)
    shown = columns(window, NOW)
    free = {"titan": extremes(rows[0], window)}
    [line] = table(rows, shown, see_entries([mine, other], rows, Sight(ALICE), window, NOW), [], free)
    assert [cell.free for cell in line.cells] == [(2, 2), (1, 2), (1, 2), (2, 2), (2, 2), (2, 2), (2, 2)]
    assert [[listed_entry.entry.id for listed_entry in cell.mine] for cell in line.cells] == [
        [],
        ["bkg-1"],
        ["bkg-1"],
        [],
        [],
        [],
        [],
    ]
    assert [column.today for column in shown] == [True] + [False] * 6


def test_a_cell_names_few_bookings_and_counts_the_rest() -> None:
    window = window_of(TimelineScale.WEEK, NOW.date(), BERLIN)
    rows = rows_of([card(0)], By.NODE)
    own = see_entries([entry(id=f"bkg-{number}") for number in range(500)], rows, Sight(ALICE), window, NOW)
    [line] = table(rows, columns(window, NOW), own, [], {"titan": [None] * 7})
    assert [(len(cell.mine), cell.more) for cell in line.cells][:2] == [(3, 497), (0, 0)]


def test_what_is_over_has_no_count() -> None:
    window = window_of(TimelineScale.WEEK, NOW.date() - timedelta(days=3), BERLIN)
    rows = rows_of([card(0)], By.NODE)
    free = {"titan": extremes(rows[0], window)}
    [line] = table(rows, columns(window, NOW), [], [], free)
    assert [cell.free for cell in line.cells] == [None, None, None, (1, 1), (1, 1), (1, 1), (1, 1)]


# == Addresses ==


def asked(**parameters: str) -> TimelineQuery:
    return read_query(lambda name: parameters.get(name, ""), date(2030, 3, 4))


def test_an_address_says_what_is_shown() -> None:
    found = asked(view="2weeks", by="node", type="h100", page="2", **{"from": "2030-03-05T09:00"})
    address = found.address(page=found.page)
    assert address == "/calendar?view=2weeks&by=node&from=2030-03-05&type=h100&page=2"
    assert found.address(view=TimelineScale.DAY) == "/calendar?view=day&by=node&from=2030-03-05&type=h100"
    assert asked().address() == "/calendar?view=week&from=2030-03-04"


@pytest.mark.parametrize(
    "wrong",
    [
        {"view": "year"},
        {"by": "person"},
        {"from": "soon"},
        {"page": "0"},
        {"page": "-1"},
        {"page": "9" * 50},
        {"node": "x" * 300},
    ],
)
def test_what_cannot_be_shown_is_refused_in_words(wrong: dict[str, str]) -> None:
    with pytest.raises(ProblemError) as refused:
        asked(**wrong)
    assert refused.value.status == 422

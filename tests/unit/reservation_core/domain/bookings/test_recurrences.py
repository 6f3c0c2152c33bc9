"""Series across changes of the clocks, against an oracle that walks day by day; rules that can't be booked by."""

# ruff: noqa: DTZ001 - local times have no zone

import time
from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.bookings.asked_slots import Span
from reservation_core.domain.bookings.recurrences import MAX_OCCURRENCES, Occurrence, RecurrenceError, occurrences
from reservation_core.domain.wall_times import in_zone
from tests.examples import examples

ZONES = ["Europe/Stockholm", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "UTC", "Asia/Kathmandu"]
DAYS = ["MO", "TU", "WE", "TH", "FR", "SA", "SU"]
STOCKHOLM = ZoneInfo("Europe/Stockholm")


def instants(wall: datetime, zone: ZoneInfo) -> list[datetime]:
    """Every instant at which the clock on the wall shows this, by looking at all that could."""
    offsets = {(wall.replace(tzinfo=UTC) + timedelta(hours=h)).astimezone(zone).utcoffset() for h in range(-30, 31)}
    found = {wall.replace(tzinfo=UTC) - (offset or timedelta(0)) for offset in offsets}
    return sorted(at for at in found if at.astimezone(zone).replace(tzinfo=None, fold=0) == wall)


def first(day: date, hour: int, minute: int, zone: ZoneInfo, length: timedelta) -> Span | None:
    start = instants(datetime(day.year, day.month, day.day, hour, minute), zone)
    return Span(start[0], start[0] + length) if start else None


@examples(300)
@given(
    st.sampled_from(ZONES),
    st.dates(date(2026, 1, 1), date(2031, 12, 31)),
    st.integers(0, 23),
    st.sampled_from([0, 15, 30, 59]),
    st.integers(1, 60),
    st.integers(1, 5),
    st.lists(st.sampled_from(DAYS), unique=True),
)
def test_dates_are_at_the_same_time_of_day_whatever_the_clocks_do(
    name: str, day: date, hour: int, minute: int, count: int, interval: int, weekdays: list[str]
) -> None:
    zone = ZoneInfo(name)
    length = timedelta(hours=2)
    span = first(day, hour, minute, zone, length)
    if span is None:
        return
    by_day = f";BYDAY={','.join(weekdays)}" if weekdays else ""
    expected = [
        datetime(listed_date.year, listed_date.month, listed_date.day, hour, minute)
        for n in range(0, 401, interval)
        for listed_date in [day + timedelta(days=n)]
        if not weekdays or DAYS[listed_date.weekday()] in weekdays
    ][:count]
    rule = f"FREQ=DAILY;INTERVAL={interval};COUNT={count}{by_day}"
    if len(expected) < count:
        with pytest.raises(RecurrenceError):
            occurrences(rule, span, zone, None)
        return
    found = occurrences(rule, span, zone, None)
    assert [occurrence.local_start for occurrence in found] == expected
    assert [occurrence.number for occurrence in found] == list(range(len(expected)))
    for occurrence in found:
        there = instants(occurrence.local_start, zone)
        assert (occurrence.span is None) == (not there)
        if occurrence.span is not None:
            assert occurrence.span == Span(there[0], there[0] + length)


@cache
def changes_of_clocks(name: str) -> list[datetime]:
    """Local times, by the clock before it, of every change from 2020 to 2031; one of no change where there is none."""
    zone = ZoneInfo(name)
    found = []
    for day in (datetime(2020, 1, 1, tzinfo=UTC) + timedelta(days=n) for n in range(12 * 365)):
        hours = [(day + timedelta(hours=n)).astimezone(zone) for n in range(25)]
        if hours[0].utcoffset() != hours[-1].utcoffset():
            found += [a.replace(tzinfo=None, fold=0) for a, b in pairwise(hours) if a.utcoffset() != b.utcoffset()]
    return found or [datetime(2030, 1, 1)]


@examples(300)
@given(st.sampled_from(ZONES), st.integers(0, 1000), st.integers(-120, 180))
def test_a_local_time_is_its_first_instant_or_none(name: str, which: int, minutes: int) -> None:
    changes = changes_of_clocks(name)
    wall = changes[which % len(changes)] + timedelta(minutes=minutes)
    zone = ZoneInfo(name)
    there = instants(wall, zone)
    if there:
        assert in_zone(wall, zone) == there[0]
    else:
        with pytest.raises(ValueError, match="does not exist") as raised:
            in_zone(wall, zone)
        before, after = raised.value.before, raised.value.after  # type: ignore[attr-defined]
        assert before + timedelta(minutes=1) == after
        walls = [at.astimezone(zone).replace(tzinfo=None) for at in (before, after)]
        assert walls[0] < wall < walls[1] or walls[1] == wall


def _of(rule: str, start: str, length: timedelta, wall_length: timedelta | None = None) -> list[Occurrence]:
    begin = in_zone(datetime.fromisoformat(start), STOCKHOLM)
    return occurrences(rule, Span(begin, begin + length), STOCKHOLM, wall_length)


def test_an_end_by_the_clock_stays_by_the_clock_and_a_length_stays_a_length() -> None:
    night = timedelta(hours=8)
    by_length = _of("FREQ=DAILY;COUNT=3", "2026-10-23T22:00", night)
    by_clock = _of("FREQ=DAILY;COUNT=3", "2026-10-23T22:00", night, night)
    assert [occurrence.span.length for occurrence in by_length if occurrence.span] == [night] * 3
    assert [occurrence.span.length for occurrence in by_clock if occurrence.span] == [night, timedelta(hours=9), night]


def test_a_date_whose_time_does_not_exist_is_told_apart() -> None:
    found = _of("FREQ=DAILY;COUNT=3", "2026-03-28T02:30", timedelta(hours=1))
    assert [occurrence.span is None for occurrence in found] == [False, True, False]
    assert "2026-03-29T01:59+01:00 or 2026-03-29T03:00+02:00" in found[1].why


def test_until_counts_days_local_and_utc_times() -> None:
    for until in ("20261103", "20261103T090000", "20261103T080000Z"):
        assert len(_of(f"FREQ=DAILY;UNTIL={until}", "2026-11-01T09:00", timedelta(hours=1))) == 3
    assert len(_of("FREQ=DAILY;UNTIL=20261103T075959Z", "2026-11-01T09:00", timedelta(hours=1))) == 2


def test_monthly_and_yearly_rules_know_leap_days_and_weekdays() -> None:
    leap = _of("FREQ=MONTHLY;BYMONTHDAY=29;COUNT=4", "2027-12-29T09:00", timedelta(hours=1))
    assert [occurrence.local_start.date().isoformat() for occurrence in leap] == [
        "2027-12-29", "2028-01-29", "2028-02-29", "2028-03-29",
    ]  # fmt: skip
    last_fridays = _of("FREQ=MONTHLY;BYDAY=-1FR;COUNT=3", "2099-11-27T09:00", timedelta(hours=1))
    assert [friday.local_start.date().isoformat() for friday in last_fridays] == [
        "2099-11-27",
        "2099-12-25",
        "2100-01-29",
    ]


@pytest.mark.parametrize(
    "rule",
    [
        "FREQ=DAILY", "FREQ=SECONDLY;COUNT=2", "FREQ=MINUTELY;COUNT=2", "FREQ=HOURLY;COUNT=2", "COUNT=2", "", ";",
        "FREQ=DAILY;COUNT=0", "FREQ=DAILY;COUNT=-1", "FREQ=DAILY;COUNT=367", "FREQ=DAILY;COUNT=9999999999",
        "FREQ=DAILY;INTERVAL=0;COUNT=2", "FREQ=DAILY;COUNT=2;COUNT=3", "FREQ=DAILY;BYHOUR=1,2;COUNT=2",
        "FREQ=DAILY;BYMINUTE=1;COUNT=2", "FREQ=DAILY;BYEASTER=0;COUNT=2", "FREQ=DAILY;UNTIL=20261399",
        "FREQ=DAILY;UNTIL=20200101", "FREQ=DAILY;UNTIL=20990101", "FREQ=YEARLY;COUNT=3",
        "FREQ=DAILY;BYMONTH=13;COUNT=1", "FREQ=DAILY;BYDAY=XX;COUNT=1",
        "FREQ=DAILY\nDTSTART:20260101T000000Z;COUNT=1", "DTSTART:20260101\nRRULE:FREQ=DAILY",
        "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30;COUNT=1", "FREQ=YEARLY;BYYEARDAY=999;COUNT=1", "FREQ=DAILY;\x00=1;COUNT=1",
    ],
)  # fmt: skip
def test_rules_without_an_end_without_dates_or_without_sense_are_refused_quickly(rule: str) -> None:
    began = time.process_time()
    with pytest.raises(RecurrenceError):
        _of(rule, "2026-11-01T09:00", timedelta(hours=1))
    # The library alone looks for the 30th of February until the year 9999, for ten seconds.
    assert time.process_time() - began < 5


def test_the_most_dates_there_can_be() -> None:
    assert len(_of(f"FREQ=DAILY;COUNT={MAX_OCCURRENCES}", "2026-11-01T09:00", timedelta(hours=1))) == MAX_OCCURRENCES


@pytest.mark.parametrize(
    ("rule", "bound"),
    [
        ("FREQ=DAILY;COUNT=100000", "COUNT .* from 1 to 366"),
        ("FREQ=DAILY;COUNT=0", "COUNT .* from 1 to 366"),
        ("FREQ=DAILY;COUNT=2;INTERVAL=1000", "INTERVAL .* from 1 to 999"),
    ],
)
def test_numbers_out_of_bounds_are_told_their_bounds(rule: str, bound: str) -> None:
    with pytest.raises(RecurrenceError, match=bound):
        _of(rule, "2026-11-01T09:00", timedelta(hours=1))

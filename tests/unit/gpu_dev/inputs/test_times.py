"""Times as people type them."""

import re
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from gpu_dev.errors import UsageError
from gpu_dev.inputs import times
from gpu_dev.inputs.times import (
    parse_end,
    parse_instant,
    parse_new_end,
    parse_past,
    parse_period,
    parse_time,
    zone_name,
)

STOCKHOLM = "Europe/Stockholm"
# A Saturday, 12:30 in Stockholm.
NOW = datetime(2026, 11, 21, 11, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("typed", "sent"),
    [
        ("2030-01-31 09:00", "2030-01-31T09:00"),
        ("2030-01-31T9:05", "2030-01-31T09:05"),
        ("13:00", "2026-11-21T13:00"),
        ("9:00", "2026-11-22T09:00"),
        ("today 9:00", "2026-11-21T09:00"),
        ("Tomorrow  09:00", "2026-11-22T09:00"),
        ("sat 12:30", "2026-11-21T12:30"),
        ("sat 12:00", "2026-11-28T12:00"),
        ("mon 14:30", "2026-11-23T14:30"),
        ("tomorrow 9am", "2026-11-22T09:00"),
        ("tomorrow 9 PM", "2026-11-22T21:00"),
        ("tomorrow 9", "2026-11-22T09:00"),
        ("mon 12am", "2026-11-23T00:00"),
        ("12pm", "2026-11-22T12:00"),
        ("9:15pm", "2026-11-21T21:15"),
        ("2030-01-31 9am", "2030-01-31T09:00"),
        ("noon", "2026-11-22T12:00"),
        ("midnight", "2026-11-22T00:00"),
        ("Mon at Noon", "2026-11-23T12:00"),
        ("noon tomorrow", "2026-11-22T12:00"),
        ("9am on mon", "2026-11-23T09:00"),
        ("14:00 2030-01-31", "2030-01-31T14:00"),
        ("next monday 9am", "2026-11-23T09:00"),
        ("next sat 13:00", "2026-11-28T13:00"),
        ("now", "2026-11-21T12:30+01:00"),
        ("in 2h", "2026-11-21T14:30+01:00"),
        ("in 90s", "2026-11-21T12:31:30+01:00"),
        ("12pm tomorrow UTC", "2026-11-22T12:00Z"),
        ("9 tomorrow", "2026-11-22T09:00"),
        ("9:30 on mon CET", "2026-11-23T09:30+01:00"),
        ("tomorrow 10:00:30", "2026-11-22T10:00:30"),
        ("10:00:30 tomorrow", "2026-11-22T10:00:30"),
        ("2030-01-31T10:00:30", "2030-01-31T10:00:30"),
        ("13:00 UTC", "2026-11-21T13:00Z"),
        ("9am utc", "2026-11-22T09:00Z"),
        ("09:00 CET", "2026-11-22T09:00+01:00"),
        ("midnight UTC", "2026-11-22T00:00Z"),
        ("2030-01-31T09:00Z", "2030-01-31T09:00Z"),
        ("2030-01-31 9:00+01:00", "2030-01-31T09:00+01:00"),
        ("2030-01-31 09:00 Z", "2030-01-31T09:00Z"),
        ("2030-01-31 09:00+02:00", "2030-01-31T09:00+02:00"),
    ],
)
def test_what_is_typed_is_sent_local_to_the_zone(typed: str, sent: str) -> None:
    assert parse_time(typed, NOW, STOCKHOLM) == sent


@pytest.mark.parametrize(
    "typed",
    [
        "",
        "soon",
        "25:00",
        "12:60",
        "2030-02-30",
        "t 09:00",
        "tu-we 9:00",
        "in a while",
        "09.00",
        "2030-1-1",
        "9",
        "13pm",
        "0am",
        "am",
        "mon mon 9am",
        "2030-01-31 09:00 to 12:00",
        "09:00-12:00 2030-01-31",
        "09:00 to 12:00 on 31 Jan 2030",
    ],
)
def test_what_is_no_time_is_said_so(typed: str) -> None:
    with pytest.raises(UsageError):
        parse_time(typed, NOW, STOCKHOLM)


@pytest.mark.parametrize(
    ("typed", "question"),
    [
        ("tomorrow midnight", "Is the midnight of 'tomorrow midnight' the beginning of that day or its end?"),
        ("tomorrow midnight UTC", "Is the midnight of 'tomorrow midnight UTC' the beginning of that day or its end?"),
        ("next sun 9am", "Which Sunday, 2026-11-22 or 2026-11-29?"),
    ],
)
def test_what_people_mean_in_two_ways_is_asked_about(typed: str, question: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_time(typed, NOW, STOCKHOLM)
    assert refused.value.detail.startswith(question)


@pytest.mark.parametrize("typed", ["tomorrow", "Wednesday", "2030-01-31", "next tuesday"])
def test_a_day_without_a_time_is_asked_about_where_a_time_is_needed(typed: str) -> None:
    with pytest.raises(UsageError, match=f'At what time (on )?{typed}\\? Write it as "{typed} 9am"'):
        parse_time(typed, NOW, STOCKHOLM)


def test_a_day_alone_is_its_beginning_where_days_are_asked_for() -> None:
    assert parse_time("2030-01-31", NOW, STOCKHOLM, whole_days=True) == "2030-01-31T00:00"
    assert parse_time("wednesday", NOW, STOCKHOLM, whole_days=True) == "2026-11-25T00:00"


def test_an_instant_has_the_zone_s_offset_on_its_own_day() -> None:
    assert parse_instant("2030-07-01 09:00", NOW, STOCKHOLM) == datetime(2030, 7, 1, 9, tzinfo=ZoneInfo(STOCKHOLM))
    assert parse_instant("2030-07-01T09:00Z", NOW, STOCKHOLM) == datetime(2030, 7, 1, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("mon", "2026-11-16T00:00+01:00"),
        ("sat", "2026-11-21T00:00+01:00"),
        ("sat 14:00", "2026-11-14T14:00+01:00"),
        ("sat 9am", "2026-11-21T09:00+01:00"),
        ("yesterday", "2026-11-20T00:00+01:00"),
        ("Yesterday 9am", "2026-11-20T09:00+01:00"),
        ("9am", "2026-11-21T09:00+01:00"),
        ("9:30", "2026-11-21T09:30+01:00"),
        ("9:30:15", "2026-11-21T09:30:15+01:00"),
        ("9:30 UTC", "2026-11-21T09:30+00:00"),
        ("now", "2026-11-21T12:30+01:00"),
        ("2026-11-02", "2026-11-02T00:00+01:00"),
        ("3d", "2026-11-18T12:30+01:00"),
        ("90m ago", "2026-11-21T11:00+01:00"),
        ("-2h", "2026-11-21T10:30+01:00"),
        ("2 Hours ago", "2026-11-21T10:30+01:00"),
        ("395d", "2025-10-22T12:30+01:00"),
        ("0s", "2026-11-21T12:30+01:00"),
    ],
)
def test_a_weekday_to_look_back_at_is_the_last_one(typed: str, meant: str) -> None:
    assert parse_past(typed, NOW, STOCKHOLM) == datetime.fromisoformat(meant)


def test_a_day_that_was_is_a_time_and_one_that_is_not_is_named() -> None:
    assert parse_time("yesterday 9am", NOW, STOCKHOLM) == "2026-11-20T09:00"
    assert parse_time("Tomorrow at 9", NOW, STOCKHOLM) == "2026-11-22T09:00"
    assert parse_time("mon at 14:30", NOW, STOCKHOLM) == "2026-11-23T14:30"
    begin, _ = parse_period("yesterday", None, NOW, STOCKHOLM)
    assert begin == datetime.fromisoformat("2026-11-20T00:00+01:00")
    for text in ("2026-11-31 09:00", "2026-13-01"):
        with pytest.raises(UsageError, match=f"There is no day {text[:10]} in the calendar"):
            parse_time(text, NOW, STOCKHOLM)
    for text in ("2026-11-30 25:00", "2026-11-30 25:00Z", "2026-11-30 9am+01:00"):
        with pytest.raises(UsageError, match=f"'{re.escape(text)}' is not a time"):
            parse_time(text, NOW, STOCKHOLM)


def test_a_length_before_the_begin_is_no_end() -> None:
    for begin, end in (("1d", "3d"), ("yesterday", "2d ago")):
        with pytest.raises(UsageError, match=f"The end, '{end}', is not after the begin, '{begin}'"):
            parse_period(begin, end, NOW, STOCKHOLM, past=True)
    with pytest.raises(UsageError, match=r"'999999999w ago' is too long ago.*3d ago"):
        parse_past("999999999w ago", NOW, STOCKHOLM)


def test_a_clock_time_to_look_back_at_is_todays() -> None:
    begin, _ = parse_period("9am", None, NOW, STOCKHOLM, past=True)
    assert begin == datetime.fromisoformat("2026-11-21T09:00+01:00")
    with pytest.raises(UsageError, match="'1pm' is in the future"):
        parse_period("1pm", None, NOW, STOCKHOLM, past=True)
    with pytest.raises(UsageError, match=r"'9 or so' is not a time.*3d ago"):
        parse_past("9 or so", NOW, STOCKHOLM)


@pytest.mark.parametrize(
    ("start", "end", "until"),
    [
        ("1h ago", "noon", "2026-11-21T12:00+01:00"),
        ("2d ago", "13:00", "2026-11-20T13:00+01:00"),
        ("1h ago", "13:00", "2026-11-21T13:00+01:00"),
        ("1h ago", "11:00", None),
        ("wed", "tue", None),
    ],
)
def test_an_end_to_look_back_at_is_the_last_one_after_the_begin(start: str, end: str, until: str | None) -> None:
    if until is not None:
        assert parse_period(start, end, NOW, STOCKHOLM, past=True)[1] == datetime.fromisoformat(until)
        return
    with pytest.raises(UsageError, match="is not after the begin"):
        parse_period(start, end, NOW, STOCKHOLM, past=True)


@pytest.mark.parametrize(
    ("start", "end", "days"),
    [
        # On a Saturday the next Sunday comes before the next Monday.
        ("mon", "sun", ("2026-11-23", "2026-11-29")),
        ("mon", "fri", ("2026-11-23", "2026-11-27")),
        # A day of the week that is the begin's own is the next one of its name.
        ("mon", "mon", ("2026-11-23", "2026-11-30")),
        ("2026-11-27", "fri", ("2026-11-27", "2026-12-04")),
        (None, "fri", (None, "2026-11-27")),
        ("2026-11-01", None, ("2026-11-01", None)),
    ],
)
def test_a_week_ends_after_it_begins(start: str | None, end: str | None, days: tuple[str | None, str | None]) -> None:
    found = parse_period(start, end, NOW, STOCKHOLM)
    assert tuple(None if moment is None else f"{moment:%Y-%m-%d}" for moment in found) == days


@pytest.mark.parametrize(
    ("start", "end"),
    [("2026-11-28", "today"), ("2026-11-28", "2026-11-27"), ("tomorrow 9am", "tomorrow 8am"), ("in 2h", "now")],
)
def test_an_end_before_the_begin_is_not_read_as_another_day(start: str, end: str) -> None:
    with pytest.raises(UsageError, match="is not after the begin"):
        parse_period(start, end, NOW, STOCKHOLM)


def test_a_past_that_has_not_come_is_refused() -> None:
    with pytest.raises(UsageError, match="in the future"):
        parse_period("tomorrow", None, NOW, STOCKHOLM, past=True)


def test_the_machine_s_zone_is_found_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TZ", ":Asia/Tokyo")
    assert zone_name(None) == "Asia/Tokyo"
    assert zone_name(STOCKHOLM) == STOCKHOLM
    monkeypatch.setenv("TZ", "EST5EDT4,M3.2.0,M11.1.0")
    assert zone_name(None) is None
    monkeypatch.delenv("TZ")
    link = tmp_path / "localtime"
    link.symlink_to("/usr/share/zoneinfo/Europe/Stockholm")
    monkeypatch.setattr(times, "_LOCALTIME", link)
    assert zone_name(None) == STOCKHOLM
    with pytest.raises(UsageError, match="no time zone"):
        zone_name("Mars/Olympus")


@pytest.mark.parametrize(
    ("start", "end", "sent"),
    [
        ("tomorrow 14:00", "18:00", "2026-11-22T18:00"),
        ("mon 9am", "noon", "2026-11-23T12:00"),
        ("mon 9am", "sun noon", "2026-11-29T12:00"),
        ("2030-01-31 22:00", "2:00", "2030-02-01T02:00"),
        ("13:00", "14:00", "2026-11-21T14:00"),
        ("tomorrow 14:00", "today 18:00", "2026-11-21T18:00"),
        ("tomorrow 14:00", "6pm today", "2026-11-21T18:00"),
        ("tomorrow 14:00", "noon tomorrow", "2026-11-22T12:00"),
    ],
)
def test_the_end_of_a_slot_is_the_first_after_its_start(start: str, end: str, sent: str) -> None:
    assert parse_end(end, parse_instant(start, NOW, STOCKHOLM), NOW, STOCKHOLM) == sent


@pytest.mark.parametrize(
    ("typed", "sent"),
    [
        ("18:00", "2026-11-25T18:00"),
        ("9am", "2026-11-25T09:00"),
        ("17:00 UTC", "2026-11-25T17:00Z"),
        ("midnight", "2026-11-26T00:00"),
        ("tue 18:00", "2026-11-24T18:00"),
        ("2026-11-27 10:00", "2026-11-27T10:00"),
    ],
)
def test_a_clock_time_that_ends_a_booking_of_days_is_on_its_last_day(typed: str, sent: str) -> None:
    begin, end = (parse_instant(text, NOW, STOCKHOLM) for text in ("mon 9:00", "wed 17:00"))
    assert parse_new_end(typed, begin, end, NOW, STOCKHOLM) == sent


@pytest.mark.parametrize(
    ("start", "end", "typed", "sent"),
    [
        ("mon 9:00", "mon 17:00", "18:00", "2026-11-23T18:00"),
        ("mon 9:00", "mon 17:00", "9pm", "2026-11-23T21:00"),
        ("mon 22:00", "tue 6:00", "5:00", "2026-11-24T05:00"),
        ("mon 22:00", "tue 6:00", "23:00", "2026-11-23T23:00"),
        ("mon 22:00", "tue 6:00", "midnight", "2026-11-24T00:00"),
        ("mon 22:00", "tue 6:00", "8am", "2026-11-24T08:00"),
        ("today 8:00", "today 17:00", "noon", "2026-11-21T12:00"),
        ("mon 9:00", "wed 00:00", "18:00", "2026-11-24T18:00"),
    ],
)
def test_a_clock_time_that_ends_a_booking_is_after_its_start(start: str, end: str, typed: str, sent: str) -> None:
    begin, until = (parse_instant(text, NOW, STOCKHOLM) for text in (start, end))
    assert parse_new_end(typed, begin, until, NOW, STOCKHOLM) == sent


@pytest.mark.parametrize(
    ("shown", "sent"),
    [
        ("Mon 30 Nov 2026 09:00 UTC", "2026-11-30T09:00Z"),
        ("Sat 28 Nov 2026 04:20:01 UTC", "2026-11-28T04:20:01Z"),
        ("Sat 28 Nov 2026 04:20:01", "2026-11-28T04:20:01"),
        ("Mon 30 Nov 2026 09:00 CET", "2026-11-30T09:00+01:00"),
        ("31 Oct 2027 02:30 CEST", "2027-10-31T02:30+02:00"),
        ("31 Oct 2027 02:30 CET", "2027-10-31T02:30+01:00"),
        ("30 November 2026 9am", "2026-11-30T09:00"),
        ("tomorrow 9am UTC", "2026-11-22T09:00Z"),
    ],
)
def test_a_time_may_be_typed_as_it_is_shown(shown: str, sent: str) -> None:
    assert parse_time(shown, NOW, STOCKHOLM) == sent


@pytest.mark.parametrize("text", ["30 Jun 2027 09:00 CET", "30 Nov 2026 09:00 CEST"])
def test_a_zone_that_has_another_name_then_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"It is not CES?T here at that time\."):
        parse_time(text, NOW, STOCKHOLM)


def test_a_weekday_that_is_not_the_dates_is_refused() -> None:
    with pytest.raises(UsageError, match="2026-11-30 is a Monday, not a Tue"):
        parse_time("Tue 30 Nov 2026 09:00", NOW, STOCKHOLM)
    with pytest.raises(UsageError, match="is not a time"):
        parse_time("30 marble 2026 09:00", NOW, STOCKHOLM)


@pytest.mark.parametrize("text", ["9am mon", "mon 9am", "noon mon"])
def test_a_clock_before_a_weekday_looks_back_too(text: str) -> None:
    assert parse_past(text, NOW, STOCKHOLM) <= NOW


def test_a_length_in_seconds_is_counted_from_this_second() -> None:
    late = NOW.replace(second=45)
    assert parse_time("in 90s", late, STOCKHOLM) == "2026-11-21T12:32:15+01:00"
    assert parse_time("in 2m", late, STOCKHOLM) == "2026-11-21T12:32+01:00"
    assert parse_time("now", late, STOCKHOLM) == "2026-11-21T12:30+01:00"
    assert parse_time("12:30", late, STOCKHOLM) == "2026-11-21T12:30"


@pytest.mark.parametrize(
    ("start", "end", "question"),
    [
        ("mon 9", "8:00", 'Does it end at 8pm or at 8:00 the next day? Write --end 8pm or --end "2026-11-24 08:00".'),
        ("mon 9am", "8:30", 'Does it end at 8:30pm or at 8:30 the next day? Write --end 8:30pm or --end "2026-11-24'),
        ("mon 9", "8am", 'Does it end at 8:00 the next day? Write --end "2026-11-24 08:00".'),
        ("mon 12:30", "12:00", 'Does it end at 12:00 the next day? Write --end "2026-11-24 12:00".'),
    ],
)
def test_an_end_of_the_next_day_is_asked_about_where_the_evening_may_be_meant(
    start: str, end: str, question: str
) -> None:
    with pytest.raises(UsageError) as asked:
        parse_end(end, parse_instant(start, NOW, STOCKHOLM), NOW, STOCKHOLM, start=start)
    assert asked.value.detail.startswith(question)


@pytest.mark.parametrize(
    ("start", "end", "sent"),
    [
        ("mon 9am", "8am", "2026-11-24T08:00"),
        ("mon 14", "8:00", "2026-11-24T08:00"),
        ("mon 9", "midnight", "2026-11-24T00:00"),
        ("mon 9", "tue 8:00", "2026-11-24T08:00"),
    ],
)
def test_an_end_of_the_next_day_is_clear(start: str, end: str, sent: str) -> None:
    assert parse_end(end, parse_instant(start, NOW, STOCKHOLM), NOW, STOCKHOLM, start=start) == sent


def test_a_new_end_of_the_next_day_is_asked_about() -> None:
    begin, end = (parse_instant(text, NOW, STOCKHOLM) for text in ("mon 9:00", "mon 17:00"))
    with pytest.raises(UsageError, match="at 2pm or at 2:00 the next day"):
        parse_new_end("2:00", begin, end, NOW, STOCKHOLM)


def test_an_end_earlier_on_the_day_of_the_start_is_not_a_week_later() -> None:
    begin = parse_instant("mon 9am", NOW, STOCKHOLM)
    with pytest.raises(UsageError) as refused:
        parse_end("mon 8am", begin, NOW, STOCKHOLM)
    assert refused.value.detail == "'mon 8am' is before the start. Write --end \"2026-11-30 08:00\" for the week after."
    with pytest.raises(UsageError, match="2026-11-30 08:00"):
        parse_end("mon 7am UTC", begin, NOW, STOCKHOLM)
    assert parse_end("sun 8am", begin, NOW, STOCKHOLM) == "2026-11-29T08:00"
    assert parse_end("mon 10am", begin, NOW, STOCKHOLM) == "2026-11-23T10:00"
    in_weeks = parse_instant("14 dec 10am", NOW, STOCKHOLM)
    assert parse_end("mon 12:00", in_weeks, NOW, STOCKHOLM) == "2026-12-14T12:00"

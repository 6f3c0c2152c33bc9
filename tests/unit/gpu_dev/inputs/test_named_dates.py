"""Days with the name of their month, as people write them."""

from datetime import UTC, datetime

import pytest

from gpu_dev.errors import UsageError
from gpu_dev.inputs.times import parse_end, parse_instant, parse_past, parse_period, parse_slot, parse_time

STOCKHOLM = "Europe/Stockholm"
# A Saturday, 12:30 in Stockholm.
NOW = datetime(2026, 11, 21, 11, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("typed", "sent"),
    [
        ("30 nov 9am", "2026-11-30T09:00"),
        ("30 Nov 09:00", "2026-11-30T09:00"),
        ("Nov 30 9:00", "2026-11-30T09:00"),
        ("30 november 14:30", "2026-11-30T14:30"),
        ("30th november 9", "2026-11-30T09:00"),
        ("30. Nov 9am", "2026-11-30T09:00"),
        ("november 1st, 2027 9am", "2027-11-01T09:00"),
        ("Dec 1, 9am", "2026-12-01T09:00"),
        ("mon 30 nov at 9", "2026-11-30T09:00"),
        ("9am on 30 nov", "2026-11-30T09:00"),
        ("noon 30 nov", "2026-11-30T12:00"),
        ("14:00 nov 30", "2026-11-30T14:00"),
        ("30 nov 9am UTC", "2026-11-30T09:00Z"),
        ("21 nov 9am", "2026-11-21T09:00"),
        ("20 sep 9am", "2027-09-20T09:00"),
        ("2 jan 9am", "2027-01-02T09:00"),
        ("may 3 9am", "2027-05-03T09:00"),
        ("29 feb 2028 9am", "2028-02-29T09:00"),
    ],
)
def test_a_date_without_a_year_is_the_next_one(typed: str, sent: str) -> None:
    assert parse_time(typed, NOW, STOCKHOLM) == sent


@pytest.mark.parametrize(
    ("typed", "start", "end"),
    [
        ("30 nov 9-17", "2026-11-30T09:00", "2026-11-30T17:00"),
        ("nov 30 9-17", "2026-11-30T09:00", "2026-11-30T17:00"),
        ("30 november 9am-5pm", "2026-11-30T09:00", "2026-11-30T17:00"),
        ("Mon 30 Nov 09:00 to 17:00", "2026-11-30T09:00", "2026-11-30T17:00"),
        ("9-17 30 nov", "2026-11-30T09:00", "2026-11-30T17:00"),
        ("9-17 nov 30", "2026-11-30T09:00", "2026-11-30T17:00"),
        ("30 nov 22-6", "2026-11-30T22:00", "2026-12-01T06:00"),
        ("2 jan 9-17 UTC", "2027-01-02T09:00Z", "2027-01-02T17:00Z"),
    ],
)
def test_a_slot_may_be_on_a_date_without_a_year(typed: str, start: str, end: str) -> None:
    assert parse_slot(typed, NOW, STOCKHOLM) == (start, end)


def test_a_date_without_a_year_that_has_just_been_is_asked_about() -> None:
    for typed in ("20 nov 9am", "20 nov 9-17"):
        with pytest.raises(UsageError, match="Which 20 nov, 2026-11-20 or 2027-11-20"):
            parse_slot(typed, NOW, STOCKHOLM)
    with pytest.raises(UsageError, match="Which nov 30, 2026-11-30 or 2025-11-30"):
        parse_past("nov 30", NOW, STOCKHOLM)


def test_a_day_that_is_in_no_calendar_is_named() -> None:
    with pytest.raises(UsageError, match="There is no day 2026-11-31 in the calendar"):
        parse_time("31 nov 9am", NOW, STOCKHOLM)
    with pytest.raises(UsageError, match="There is no day 2027-02-29 in the calendar"):
        parse_time("29 feb 9am", NOW, STOCKHOLM)
    for typed in ("31 nov 9-17", "2026-11-31 9-17"):
        with pytest.raises(UsageError, match=r"There is no day 2026-11-31 in the calendar\. Write"):
            parse_slot(typed, NOW, STOCKHOLM)
    with pytest.raises(UsageError, match="2026-11-30 is a Monday, not a tue"):
        parse_slot("tue 30 nov 9-17", NOW, STOCKHOLM)
    with pytest.raises(UsageError, match="At what time on 2026-11-30"):
        parse_time("30 nov", NOW, STOCKHOLM)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("21 nov", "2026-11-21T00:00+01:00"),
        ("1 nov", "2026-11-01T00:00+01:00"),
        ("2 jan 9am", "2026-01-02T09:00+01:00"),
        ("feb 3", "2026-02-03T00:00+01:00"),
        ("1 nov 2024", "2024-11-01T00:00+01:00"),
    ],
)
def test_a_date_without_a_year_to_look_back_at_is_the_last_one(typed: str, meant: str) -> None:
    assert parse_past(typed, NOW, STOCKHOLM) == datetime.fromisoformat(meant)


def test_an_end_with_a_month_is_the_first_after_its_start() -> None:
    begin = parse_instant("30 dec 9am", NOW, STOCKHOLM)
    assert parse_end("2 jan 18:00", begin, NOW, STOCKHOLM) == "2027-01-02T18:00"
    days = parse_period("1 nov", "5 nov", NOW, STOCKHOLM, past=True)
    assert [f"{day:%Y-%m-%d}" for day in days if day is not None] == ["2026-11-01", "2026-11-05"]


@pytest.mark.parametrize("typed", ["dec 1-0530", "dec 1-09:00", "dec 5-1200", "dec 1-5", "dec 1.5", "dec 1,5"])
def test_a_date_ends_with_its_word(typed: str) -> None:
    for read in (parse_time, parse_past):
        with pytest.raises(UsageError, match=f"'{typed}' is not a time"):
            read(typed, NOW, STOCKHOLM)


@pytest.mark.parametrize("typed", ["30 jan 9-17", "last 5 mar", "5 mar at nine"])
def test_what_is_no_time_to_look_back_at_is_named_as_it_was_typed(typed: str) -> None:
    with pytest.raises(UsageError, match=f"'{typed}' is not a time"):
        parse_past(typed, NOW, STOCKHOLM)

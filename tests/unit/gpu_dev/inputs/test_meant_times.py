"""Times that cannot be read: the refusal has the form that was probably meant."""

from datetime import UTC, datetime

import pytest

from gpu_dev.errors import UsageError
from gpu_dev.inputs.times import parse_past, parse_period, parse_slot, parse_time

NOW = datetime(2026, 11, 28, 17, 50, tzinfo=UTC)


def refused(text: str) -> str:
    """What `--start` says of a text."""
    try:
        slot = parse_slot(text, NOW, "UTC")
        read = parse_time(text, NOW, "UTC") if slot is None else slot
    except UsageError as error:
        return error.detail
    pytest.fail(f"{text!r} is read as {read}")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("24.12. 9-17", '"24 dec 9-17"'),
        ("24.12. 9:00", '"24 dec 9:00"'),
        ("24.12 9am", '"24 dec 9am"'),
        ("24.12.2026 9:00", '"24 dec 2026 9:00"'),
        ("1.12.26 9:00", '"1 dec 2026 9:00"'),
        ("24/12/2026 09:00", '"24 dec 2026 09:00"'),
        ("12/24 9am", '"24 dec 9am"'),
        ("1/12 9-17", '"1 dec 9-17" or "12 jan 9-17"'),
        ("1/12", '"1 dec" or "12 jan"'),
        ("2026/12/24 9:00", '"2026-12-24 9:00"'),
        ("2026-1-5 9:00", '"2026-01-05 9:00"'),
        ("24 dec. 9am", '"24 dec 9am"'),
        ("tommorow 9am", '"tomorrow 9am"'),
        ("tmrw 9am", '"tomorrow 9am"'),
        ("wendesday 9-17", '"wednesday 9-17"'),
        ("Febuary 3 9am", '"february 3 9am"'),
        ("mo 9-17", '"mon 9-17"'),
        ("this friday 9am", '"friday 9am"'),
        ("sat from 9 to 17", '"sat 9 to 17"'),
        ("at 9am", '"9am"'),
        ("9", '"9:00"'),
        ("tomorrow 14.30", '"tomorrow 14:30"'),
        ("9h30", '"9:30"'),
        ("14:30h", '"14:30"'),
        ("9 uhr", '"9:00"'),
        ("mon 0900", '"mon 09:00"'),
        ("mon 0900-1700", '"mon 09:00-17:00"'),
        ("24:00", '"midnight"'),
        ("monday 9am-24:00", '"monday 9am-midnight"'),
        ("2h", '"in 2h"'),
        ("2h from now", '"in 2h"'),
    ],
)
def test_a_time_in_another_form_is_refused_with_the_form_that_can_be_read(typed: str, meant: str) -> None:
    assert refused(typed).endswith(f". Did you mean {meant}?")


def test_several_days_are_no_slot_and_a_series_is_named() -> None:
    assert refused("tue-fri 9-17") == (
        "'tue-fri 9-17' is several days. Give the first, such as \"tue 9-17\"; `gpu-dev book create` repeats a booking "
        'with --rrule "weekdays 5".'
    )


def test_a_time_of_another_zone_is_refused_with_the_option() -> None:
    assert refused("tomorrow 9am PST") == (
        "PST is not the time zone here. Leave it out, or give the zone with --time-zone, such as --time-zone "
        "Europe/Stockholm."
    )


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("24.12.", 'At what time on 2026-12-24? Write it as "2026-12-24 9am" or "2026-12-24 14:30".'),
        ("tomorow", 'At what time tomorrow? Write it as "tomorrow 9am" or "tomorrow 14:30".'),
        ("20.11. 9am", "Which 20 nov, 2026-11-20 or 2027-11-20? Write the date."),
    ],
)
def test_what_is_meant_may_be_asked_about_itself(typed: str, answer: str) -> None:
    assert refused(typed) == answer


@pytest.mark.parametrize("typed", ["weekdays 9-17", "every mon 9-17", "mon,wed,fri 9-17", "sun to mon", "daily"])
def test_several_days_are_no_slot(typed: str) -> None:
    assert " is several days. " in refused(typed)


def test_several_days_without_times_name_the_first_alone() -> None:
    assert refused("sun to mon") == "'sun to mon' is several days. Give the first, such as \"sun\"."


@pytest.mark.parametrize("typed", ["october", "tomorrow, noon", "now and then", "jan to feb"])
def test_what_names_no_two_days_is_not_several(typed: str) -> None:
    assert " is several days. " not in refused(typed)


@pytest.mark.parametrize("typed", ["", "soon", "next week", "morgen 9", "25:00", "1764320000", "1.1.1.1"])
def test_what_is_like_no_time_is_refused_with_examples(typed: str) -> None:
    assert refused(typed).startswith(f"{typed!r} is not a time. Write it as ")


@pytest.mark.parametrize("typed", ["31.11. 9:00", "31 nov 9am", "2026-11-31 9am"])
def test_a_day_that_no_calendar_has_is_named(typed: str) -> None:
    assert refused(typed).startswith("There is no day 2026-11-31 in the calendar. ")


@pytest.mark.parametrize("typed", ["yesterday", "2026-11-20", "20 nov 2026"])
def test_a_day_that_is_over_is_not_asked_for_a_time(typed: str) -> None:
    assert refused(typed).startswith(f"{typed!r} is in the past. Write it as ")


@pytest.mark.parametrize(
    ("typed", "options"),
    [
        ("mon-fri", "--from mon --to fri"),
        ("mon - wendesday", "--from mon --to wednesday"),
        ("nov 3-7", "--from 'nov 3' --to 'nov 7'"),
        ("3-7 nov", "--from '3 nov' --to '7 nov'"),
        ("2026-11-01..2026-11-05", "--from 2026-11-01 --to 2026-11-05"),
        ("mon 9-17", "--from 'mon 9' --to 'mon 17'"),
        ("yesterday until now", "--from yesterday --to now"),
    ],
)
def test_a_begin_and_an_end_in_one_are_refused_with_the_options(typed: str, options: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_period(typed, None, NOW, "UTC", past=True)
    assert refused.value.detail == f"{typed!r} is a begin and an end. Write {options}."


@pytest.mark.parametrize(
    ("typed", "past"),
    [("fri-mon", True), ("now-2h", True), ("tomorrow to friday", True), ("today-yesterday", False)],
)
def test_a_begin_and_an_end_that_are_refused_together_are_not_suggested(typed: str, past: bool) -> None:
    with pytest.raises(UsageError, match=rf"^'{typed}' is (not a time|several days)\."):
        parse_period(typed, None, NOW, "UTC", past=past)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("last week", "7d ago"),
        ("a week ago", "7d ago"),
        ("last month", "30d ago"),
        ("this year", "365d ago"),
        ("2 hous ago", "2h ago"),
        ("last monday", "monday"),
    ],
)
def test_a_time_to_look_back_at_in_other_words_is_refused_with_its_form(typed: str, meant: str) -> None:
    with pytest.raises(UsageError, match=f'is not a time. Did you mean "{meant}"'):
        parse_past(typed, NOW, "UTC")
    assert parse_past(meant, NOW, "UTC") < NOW


def test_of_a_time_to_look_back_at_the_forms_are_the_same() -> None:
    with pytest.raises(UsageError, match='Did you mean "24 dec 9:00"'):
        parse_past("24.12. 9:00", NOW, "UTC")
    assert parse_past("yesterday", NOW, "UTC").isoformat() == "2026-11-27T00:00:00+00:00"


@pytest.mark.parametrize(
    ("typed", "example"),
    [
        ("wednesday morning", "wednesday 9am"),
        ("tomorrow  Afternoon", "tomorrow 2pm"),
        ("30 nov in the evening", "30 nov 6pm"),
        ("this evening", "today 6pm"),
        ("tonight", "today 9pm"),
        ("wed lunchtime", "wed noon"),
    ],
)
def test_a_part_of_a_day_is_refused_with_a_clock_time(typed: str, example: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_time(typed, NOW, "UTC")
    assert refused.value.detail == f'{typed!r} has no clock time. Write one, such as "{example}".'
    assert parse_time(example, NOW, "UTC")


def test_a_part_of_no_day_is_no_time() -> None:
    with pytest.raises(UsageError, match=r"^'gloomy morning' is not a time"):
        parse_time("gloomy morning", NOW, "UTC")

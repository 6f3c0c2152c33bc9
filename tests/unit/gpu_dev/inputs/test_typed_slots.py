"""Slots as people type them: a start and an end in one."""

from datetime import UTC, datetime

import pytest

from gpu_dev.errors import UsageError
from gpu_dev.inputs.times import parse_slot

STOCKHOLM = "Europe/Stockholm"
# A Saturday, 12:30 in Stockholm.
NOW = datetime(2026, 11, 21, 11, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("typed", "start", "end"),
    [
        ("mon 9-17", "2026-11-23T09:00", "2026-11-23T17:00"),
        ("mon at 9-17", "2026-11-23T09:00", "2026-11-23T17:00"),
        ("mon 9am - 5pm", "2026-11-23T09:00", "2026-11-23T17:00"),
        ("mon 9-5pm", "2026-11-23T09:00", "2026-11-23T17:00"),
        ("mon 1-5pm", "2026-11-23T13:00", "2026-11-23T17:00"),
        ("tomorrow 22:30-2", "2026-11-22T22:30", "2026-11-23T02:00"),
        ("2030-01-31 09:00-17:00", "2030-01-31T09:00", "2030-01-31T17:00"),
        ("2030-01-31 09:00-12:00", "2030-01-31T09:00", "2030-01-31T12:00"),
        ("mon 9 - 17", "2026-11-23T09:00", "2026-11-23T17:00"),
        ("mon 1 - 5 pm", "2026-11-23T13:00", "2026-11-23T17:00"),
        ("mon 22-6", "2026-11-23T22:00", "2026-11-24T06:00"),
        ("mon 9pm-5am", "2026-11-23T21:00", "2026-11-24T05:00"),
        ("14-18", "2026-11-21T14:00", "2026-11-21T18:00"),
        ("fri 21-midnight", "2026-11-27T21:00", "2026-11-28T00:00"),
        ("fri noon-midnight", "2026-11-27T12:00", "2026-11-28T00:00"),
        ("22-6am", "2026-11-21T22:00", "2026-11-22T06:00"),
        ("9-17 tomorrow", "2026-11-22T09:00", "2026-11-22T17:00"),
        ("9am to 5pm on mon", "2026-11-23T09:00", "2026-11-23T17:00"),
        ("9-17 tomorrow UTC", "2026-11-22T09:00Z", "2026-11-22T17:00Z"),
        ("9:30 - 17:00 2030-01-31", "2030-01-31T09:30", "2030-01-31T17:00"),
    ],
)
def test_a_slot_has_a_start_and_an_end(typed: str, start: str, end: str) -> None:
    assert parse_slot(typed, NOW, STOCKHOLM) == (start, end)


@pytest.mark.parametrize(
    "typed",
    [
        "mon 9",
        "2030-01-31",
        "2030-01-31T09:00-05:00",
        "2030-01-31 09:00:00-05:00",
        "2030-01-31 09:00-0500",
        "now",
        "in 2h",
    ],
)
def test_what_is_one_time_is_no_slot(typed: str) -> None:
    assert parse_slot(typed, NOW, STOCKHOLM) is None


@pytest.mark.parametrize(
    ("typed", "question"),
    [
        ("9-5", '"9-5": 5pm, or 5:00 the next day? Write 9am-5pm or 9am-5am.'),
        ("tomorrow 9am-5", '"9am-5": 5pm, or 5:00 the next day? Write 9am-5pm or 9am-5am.'),
        ("11am - 1:30", '"11am-1:30": 1:30pm, or 1:30 the next day? Write 11am-1:30pm or 11am-1:30am.'),
        ("9pm-11", '"9pm-11": 11pm, or 11:00 the next day? Write 9pm-11pm or 9pm-11am.'),
        ("10pm-5", '"10pm-5": 5:00 the next day? Write 10pm-5am.'),
        ("9-5am", '"9-5am": from 9pm, or from 9am? Write 9pm-5am or 9am-5am.'),
    ],
)
def test_an_end_that_is_before_the_start_is_asked_about_where_it_can_be_two(typed: str, question: str) -> None:
    with pytest.raises(UsageError) as asked:
        parse_slot(typed, NOW, STOCKHOLM)
    assert asked.value.detail == question


@pytest.mark.parametrize("typed", ["tomorrow midnight-5am", "mon midnight to 5am", "2030-01-31 Midnight - 5"])
def test_a_slot_from_the_midnight_of_a_day_is_asked_about(typed: str) -> None:
    with pytest.raises(UsageError, match=f"Is the midnight of '{typed}' the beginning of that day or its end"):
        parse_slot(typed, NOW, STOCKHOLM)
    assert parse_slot("midnight-5am", NOW, STOCKHOLM) == ("2026-11-22T00:00", "2026-11-22T05:00")
    assert parse_slot("tomorrow 8pm-midnight", NOW, STOCKHOLM) == ("2026-11-22T20:00", "2026-11-23T00:00")


def test_a_slot_that_can_not_be_is_said_so() -> None:
    for typed in ("mon 9-25", "someday 9-17", "mon 30-31"):
        with pytest.raises(UsageError, match="is not a slot"):
            parse_slot(typed, NOW, STOCKHOLM)


@pytest.mark.parametrize(
    ("typed", "slot"),
    [
        ("tomorrow 2pm to 4pm", ("2026-11-22T14:00", "2026-11-22T16:00")),
        ("mon 9 until noon", ("2026-11-23T09:00", "2026-11-23T12:00")),
        ("Mon 30 Nov 2026 09:00 to 17:00 UTC", ("2026-11-30T09:00Z", "2026-11-30T17:00Z")),
    ],
)
def test_a_slot_may_be_written_with_to(typed: str, slot: tuple[str, str]) -> None:
    assert parse_slot(typed, NOW, STOCKHOLM) == slot

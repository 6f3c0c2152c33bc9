"""The fields of a slot, and the rule of a series."""

from collections.abc import Callable

import pytest

from gpu_dev.errors import UsageError
from gpu_dev.inputs.slots import recurrence_rule, slot_fields, start_and_length, window_fields


def test_a_series_has_dates() -> None:
    assert recurrence_rule("weekly 8") == "FREQ=WEEKLY;COUNT=8"
    with pytest.raises(UsageError, match="How many dates has the series"):
        recurrence_rule("weekly 0")


@pytest.mark.parametrize("start", ["2027-03-28 02:30", "2027-03-28 02:30-04:00"])
def test_a_window_in_an_hour_that_a_clock_change_leaves_out_is_refused(start: str) -> None:
    duration = None if "-04" in start else "1h"
    with pytest.raises(UsageError, match="2027-03-28T02:30 does not exist in Europe/Stockholm"):
        window_fields(start, None, duration, "Europe/Stockholm")


@pytest.mark.parametrize("fields", [slot_fields, lambda start, _, length, zone: start_and_length(start, length, zone)])
def test_a_start_without_time_of_day_or_length_is_asked_for_both(fields: Callable[..., object]) -> None:
    with pytest.raises(UsageError, match=r"At what time tomorrow\? Write .* Say for how long: --for 4h"):
        fields("tomorrow", None, None, "UTC")
    with pytest.raises(UsageError, match=r"^Say for how long: --for 4h"):
        fields("tomorrow 9am", None, None, "UTC")


def test_a_length_that_is_given_twice_is_not_asked_for() -> None:
    with pytest.raises(UsageError, match="Say for how long once: by --for, or by --end"):
        slot_fields("tomorrow 9am", "17:00", "8h", "UTC")


def test_an_end_that_may_be_of_the_next_day_is_asked_about() -> None:
    with pytest.raises(UsageError, match="Does it end at 8pm or at 8:00 the next day"):
        slot_fields("2030-01-31 9:00", "8:00", None, "UTC")
    assert slot_fields("2030-01-31 9am", "8am", None, "UTC")["end"] == "2030-02-01T08:00"

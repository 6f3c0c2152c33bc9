"""Times that people type while clocks change, or soon will."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from gpu_dev.errors import UsageError
from gpu_dev.inputs.times import parse_end, parse_instant, parse_time

STOCKHOLM = "Europe/Stockholm"


@pytest.mark.parametrize(
    ("now", "typed", "sent"),
    [
        (datetime(2027, 3, 28, 0, 30, tzinfo=UTC), "in 2h", "2027-03-28T04:30+02:00"),
        (datetime(2027, 3, 28, 0, 30, tzinfo=UTC), "in 45m", "2027-03-28T03:15+02:00"),
        (datetime(2027, 10, 31, 0, 30, tzinfo=UTC), "in 2h", "2027-10-31T03:30+01:00"),
        (datetime(2027, 10, 31, 1, 10, tzinfo=UTC), "in 90s", "2027-10-31T02:11:30+01:00"),
    ],
)
def test_a_length_from_now_is_as_long_where_clocks_change(now: datetime, typed: str, sent: str) -> None:
    assert parse_time(typed, now, STOCKHOLM) == sent


def test_an_instant_that_a_clock_change_leaves_out_is_refused() -> None:
    with pytest.raises(UsageError, match="2027-03-28T02:30 does not exist in Europe/Stockholm: clocks go forward"):
        parse_instant("2027-03-28 02:30", datetime(2026, 11, 21, 11, 30, tzinfo=UTC), STOCKHOLM)


def test_an_end_s_clock_time_is_not_looked_for_before_the_start() -> None:
    """02:30 does not exist on the day before the start, which the end is not about."""
    now, begin = datetime(2027, 3, 27, 21, tzinfo=UTC), datetime(2027, 3, 28, 22, tzinfo=ZoneInfo(STOCKHOLM))
    assert parse_end("02:30", begin, now, STOCKHOLM, start="2027-03-28 22:00") == "2027-03-29T02:30"

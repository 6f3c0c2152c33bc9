"""Where the columns of usage begin: with the viewer's hours and days, not in the middle of them."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from api_service.web.routes.reports.usage import begin

NOW = datetime(2030, 4, 1, 2, 34, 56, 789, tzinfo=UTC)


@pytest.mark.parametrize(
    ("span", "zone", "start"),
    [
        ("day", "UTC", "2030-03-31T03:00:00+00:00"),
        ("week", "UTC", "2030-03-26T00:00:00+00:00"),
        ("week", "America/New_York", "2030-03-25T00:00:00-04:00"),  # there it is still March
        ("week", "Europe/Berlin", "2030-03-26T00:00:00+01:00"),  # before the clocks were put forward
        ("month", "UTC", "2030-03-03T00:00:00+00:00"),
    ],
)
def test_a_span_begins_with_a_whole_hour_or_day(span: str, zone: str, start: str) -> None:
    assert begin(span, NOW, ZoneInfo(zone)).isoformat() == start

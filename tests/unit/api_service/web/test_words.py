"""How times, spans and amounts are written."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from api_service.web import words

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ("Running until 2026-11-22T14:30:00Z at the latest.", "Running until 15:30 at the latest."),
        (
            "From 2026-11-22T23:30Z to 2027-01-02T03:04:00.500Z.",
            "From Mon 23 Nov 00:30 to 2027-01-02 04:04.",
        ),
        (
            "No 2026-13-45T99:99:00Z is a time, nor is 2026-11-22.",
            "No 2026-13-45T99:99:00Z is a time, nor is 2026-11-22.",
        ),
        ("", ""),
    ],
)
def test_times_within_sentences_are_the_readers_too(said: str, read: str) -> None:
    assert words.in_zone(said, BERLIN, NOW) == read


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, "–"),
        ("2026-11-22T14:30:00Z", "15:30"),
        ("2026-11-22T23:30:00Z", "Mon 23 Nov 00:30"),  # tomorrow, where the reader is
        (datetime(2027, 1, 2, 3, 4, tzinfo=UTC), "2027-01-02 04:04"),
    ],
)
def test_times_are_the_readers(value: str | datetime | None, written: str) -> None:
    assert words.clock(value, BERLIN, NOW) == written


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, "–"),
        (59.9, "59 s"),
        ("PT1H30M", "1 h 30 min"),
        ("P2DT3H4M", "2 d 3 h"),
        (timedelta(days=1), "1 d"),
        ("PT0S", "0 s"),
    ],
)
def test_spans_have_their_two_largest_parts(value: str | float | timedelta | None, written: str) -> None:
    assert words.span(value) == written


def test_what_is_ahead_and_what_is_past() -> None:
    assert words.until(NOW + timedelta(minutes=5), NOW) == "in 5 min"
    assert words.until("2026-11-22T10:00:00Z", NOW) == "2 h ago"


@pytest.mark.parametrize(
    ("value", "written"),
    [(0, "0"), (0.001, "< 0.01"), (0.05, "0.05"), (1.25, "1.2"), (99.94, "99.9"), (12345.6, "12,346")],
)
def test_hours_are_as_exact_as_somebody_reads(value: float, written: str) -> None:
    assert words.hours(value) == written

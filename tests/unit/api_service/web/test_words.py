"""How times, spans and amounts are written."""

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from api_service.web import words

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")
TWICE = "Sun 25 Oct 02:00 CEST to 02:00 CET"


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ("Running until 2026-11-22T14:30:00Z at the latest.", "Running until 15:30 CET at the latest."),
        (
            "From 2026-11-22T23:30Z to 2027-01-02T03:04:00.500Z.",
            "From Mon 23 Nov 00:30 to Sat 2 Jan 2027 04:04 CET.",
        ),
        (
            "Booked from 2027-03-07T05:00:00Z to 2027-03-07T17:00:00Z.",
            "Booked from Sun 7 Mar 2027 06:00 to 18:00 CET.",
        ),
        (
            "From 2026-11-22T13:00:00Z to 2026-11-22T15:00:00Z, or to 2026-99-22T15:00:00Z.",
            "From 14:00 to 16:00 CET, or to 2026-99-22T15:00:00Z.",
        ),
        (
            "No 2026-13-45T99:99:00Z is a time, nor is 2026-11-22.",
            "No 2026-13-45T99:99:00Z is a time, nor is 2026-11-22.",
        ),
        (
            "2026-03-29T02:30 does not exist: write 2026-03-29T01:59+01:00 or 2026-03-29T03:00+02:00.",
            "Sun 29 Mar 02:30 does not exist: write Sun 29 Mar 01:59 CET or Sun 29 Mar 03:00 CEST.",
        ),
        (", ".join(["2026-11-22T13:00Z"] * 12) + ": Late.", ", ".join(["14:00 CET"] * 10) + " and 2 more: Late."),
        ("Write a time such as 2030-01-31T09:00:00Z.", "Write a time such as 2030-01-31T09:00:00Z."),
        ("job-2026-11-22T14:30x", "job-2026-11-22T14:30x"),
        ("", ""),
    ],
)
def test_times_within_sentences_are_the_readers_too(said: str, read: str) -> None:
    assert words.in_zone(said, BERLIN, NOW) == read


@pytest.mark.parametrize(
    ("when", "written"),
    [
        (None, "–"),
        (datetime(2026, 11, 22, 14, 30, tzinfo=UTC), "15:30"),
        (datetime(2026, 11, 22, 23, 30, tzinfo=UTC), "Mon 23 Nov 00:30"),  # tomorrow, where the reader is
        (datetime(2027, 1, 2, 3, 4, tzinfo=UTC), "Sat 2 Jan 2027 04:04"),
    ],
)
def test_times_are_the_readers(when: datetime | None, written: str) -> None:
    assert words.clock(when, BERLIN, NOW) == written


def test_the_hour_that_comes_twice_says_which_of_the_two_it_is() -> None:
    first = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    assert words.clock(first, BERLIN, NOW) == "Sun 25 Oct 02:30 CEST"
    assert words.clock(first + timedelta(hours=1), BERLIN, NOW) == "Sun 25 Oct 02:30 CET"
    assert words.clock(first + timedelta(hours=2), BERLIN, NOW) == "Sun 25 Oct 03:30"


@pytest.mark.parametrize(
    ("start", "end", "plain", "zoned"),
    [
        ((2026, 11, 22, 13), (2026, 11, 22, 15), "14:00 to 16:00", "14:00 to 16:00 CET"),
        ((2027, 3, 7, 5), (2027, 3, 7, 17), "Sun 7 Mar 2027 06:00 to 18:00", "Sun 7 Mar 2027 06:00 to 18:00 CET"),
        # Another day than the start's is always said, also if it is today.
        ((2026, 11, 21, 13), (2026, 11, 22, 15), "Sat 21 Nov 14:00 to Sun 22 Nov 16:00", None),
        ((2026, 11, 22, 13), (2026, 11, 22, 23), "14:00 to Mon 23 Nov 00:00", None),
        ((2026, 12, 31, 13), (2027, 1, 1, 13), "Thu 31 Dec 14:00 to Fri 1 Jan 2027 14:00", None),
        (
            (2027, 3, 27, 13),
            (2027, 3, 28, 13),
            "Sat 27 Mar 2027 14:00 to Sun 28 Mar 15:00",
            "Sat 27 Mar 2027 14:00 CET to Sun 28 Mar 15:00 CEST",
        ),
        (
            (2026, 10, 25, 0),
            (2026, 10, 25, 1),
            "Sun 25 Oct 02:00 CEST to 02:00 CET",
            "Sun 25 Oct 02:00 CEST to 02:00 CET",
        ),
    ],
)
def test_a_range_says_its_day_once(start: tuple[int, ...], end: tuple[int, ...], plain: str, zoned: str | None) -> None:
    first, last = datetime(*start, tzinfo=UTC), datetime(*end, tzinfo=UTC)  # type: ignore[misc]
    assert words.clock_range(first, last, BERLIN, NOW) == plain
    assert words.zoned_range(first, last, BERLIN, NOW) == (zoned or f"{plain} CET")
    written = re.sub("<[^>]*>", "", words.range_elements(first, last, BERLIN, NOW))
    assert written == words.zoned_range(first, last, BERLIN, NOW)


@pytest.mark.parametrize(
    ("zone", "written"),
    [("UTC", "14:30 UTC"), ("Asia/Dubai", "18:30 UTC+04:00"), ("America/Sao_Paulo", "11:30 UTC-03:00")],
)
def test_a_zone_without_letters_is_its_offset(zone: str, written: str) -> None:
    assert words.zoned_clock(datetime(2026, 11, 22, 14, 30, tzinfo=UTC), ZoneInfo(zone), NOW) == written


def test_a_time_is_an_element_that_programs_can_read_too() -> None:
    element = words.time_element(datetime(2026, 11, 22, 14, 30, 1, 234567, tzinfo=UTC), BERLIN, NOW)
    assert element == (
        '<time datetime="2026-11-22T14:30:01.234Z" title="Sun 22 Nov 2026 15:30:01 CET">15:30 CET</time>'
    )
    assert words.time_element(None, BERLIN, NOW) == "–"


@pytest.mark.parametrize(
    ("length", "written"),
    [
        (timedelta(seconds=59.9), "59 s"),
        (timedelta(hours=1, minutes=30), "1 h 30 min"),
        (timedelta(days=2, hours=3, minutes=4), "2 d 3 h"),
        (timedelta(days=1), "1 d"),
        (timedelta(0), "0 s"),
    ],
)
def test_spans_have_their_two_largest_parts(length: timedelta, written: str) -> None:
    assert words.span(length) == written


def test_what_is_ahead_and_what_is_past() -> None:
    assert words.until(NOW + timedelta(minutes=5), NOW) == "in 5 min"
    assert words.until(NOW - timedelta(hours=2), NOW) == "2 h ago"


@pytest.mark.parametrize(
    ("asked", "written"),
    [
        ((2, "h100", 1), "2 h100"),
        ((1, None, 1), "1 any"),
        ((8, "h100", 4), "4 nodes × 8 h100"),
        ((1, None, 2), "2 nodes × 1 any"),
        ((0, None, 1), "none"),
    ],
)
def test_a_request_reads_as_on_the_command_line(asked: tuple[int, str | None, int], written: str) -> None:
    assert words.wanted_gpus(*asked) == written


def test_commands_are_code_and_nothing_else_is_markup() -> None:
    assert words.with_code("<b>No</b>. `gpu-dev policy list` shows `<i>`.") == (
        "&lt;b&gt;No&lt;/b&gt;. <code>gpu-dev policy list</code> shows <code>&lt;i&gt;</code>."
    )
    assert words.with_code("One ` alone.") == "One ` alone."

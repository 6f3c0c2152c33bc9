"""The grammar of durations."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_dev.errors import UsageError
from gpu_dev.inputs.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("45s", 45),
        ("90m", 5400),
        ("4h", 14_400),
        ("1h30m", 5400),
        ("2d", 172_800),
        ("1w", 604_800),
        ("1d2h3m4s", 93_784),
        (" 4H ", 14_400),
        ("4hours", 14_400),
        ("4 hours", 14_400),
        ("1 hour 30 minutes", 5400),
        ("90 min", 5400),
        ("2 days", 172_800),
        ("1hr5sec", 3605),
        ("1.5h", 5400),
        ("0.25 days", 21_600),
        ("PT4H", 14_400),
        ("pt90m", 5400),
        ("P1DT1H", 90_000),
        ("90d", 7_776_000),
    ],
)
def test_reads(text: str, seconds: int) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "h",
        "-4h",
        "4x",
        "4h4h",
        "30m1h",
        "1.5h30m",
        "1.h",
        "4 months",
        "0.1s",
        "0s",
        "PT0S",
        "-PT4H",
        "91d",
        "9999999999d",
        "P",
        "PT",
        "PT0.5S",
        "999999999w",
        "٤h",
        "4h\n5m",
        "inf",
        "P1Y9999M",
    ],
)
def test_refuses_and_says_how_to_write_it(text: str) -> None:
    with pytest.raises(UsageError, match="Write it as"):
        parse_duration(text)


@given(st.integers(1, 90 * 86_400))
def test_what_is_shown_reads_back(seconds: int) -> None:
    assert parse_duration(format_duration(timedelta(seconds=seconds))) == timedelta(seconds=seconds)


def test_a_number_alone_is_asked_about() -> None:
    with pytest.raises(UsageError, match=r"4 of what\? Write 4h for hours"):
        parse_duration("4")


def test_no_time_is_not_asked_about() -> None:
    with pytest.raises(UsageError, match="at least 1s"):
        parse_duration("0")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("an hour", "1h"),
        ("half an hour", "30m"),
        ("half a day", "12h"),
        ("a quarter hour", "15m"),
        ("quarter of an hour", "15m"),
        ("1 day and a half", "1d12h"),
        ("an hour and a half", "1h30m"),
        ("one and a half hours", "1h30m"),
        ("2 and a half days", "2d12h"),
        ("an hour and a quarter", "1h15m"),
        ("two days", "2d"),
        ("a week", "7d"),
        ("day", "1d"),
        ("2,5h", "2h30m"),
        ("4 hous", "4h"),
        ("3 hrs.", "3h"),
        ("1 hour and 30 minutes", "1h30m"),
        ("1:30", "1m30s or 1h30m"),
        ("1:30:00", "1h30m"),
        ("2 months", "60d"),
        ("1 month and a half", "45d"),
    ],
)
def test_a_length_in_other_words_is_refused_with_the_form_that_can_be_read(typed: str, meant: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_duration(typed)
    assert refused.value.detail == f"{typed!r} is not a duration. Did you mean {meant}?"


@pytest.mark.parametrize(
    "typed", ["forever", "never", "soon", "4 months", "0:00", "4x", "-4h", "a job", "1,000 s", "1,500m"]
)
def test_what_is_like_no_length_is_refused_with_all_forms(typed: str) -> None:
    with pytest.raises(UsageError, match=r"is not a duration\. Write it as 45s"):
        parse_duration(typed)

"""Time limits, against the forms that `sbatch --time` documents."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_dev.slurm.reading.time_limits import read_time_limit, write_time

FORMS = {
    "{m}": (0, 0, 1, 0),
    "{m}:{s}": (0, 0, 1, 1),
    "{h}:{m}:{s}": (0, 1, 1, 1),
    "{d}-{h}": (1, 1, 0, 0),
    "{d}-{h}:{m}": (1, 1, 1, 0),
    "{d}-{h}:{m}:{s}": (1, 1, 1, 1),
}
"""The documented forms, and which of days, hours, minutes and seconds each has."""
NUMBERS = st.integers(0, 100_000)
PARTS = st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS)


def is_documented(text: str) -> bool:
    """Whether a text has one of the forms, read from left to right."""
    days, dash, rest = text.rpartition("-")
    parts = rest.split(":")
    numbers = [days, *parts] if dash else parts
    return len(parts) <= 3 and all(number and set(number) <= set("0123456789") for number in numbers)


@given(st.sampled_from(sorted(FORMS)), PARTS, st.booleans())
def test_a_limit_is_what_its_form_says_rounded_up_to_minutes(form: str, parts: tuple[int, ...], padded: bool) -> None:
    width = 2 if padded else 1
    text = form.format(**{name: f"{part:0{width}}" for name, part in zip("dhms", parts, strict=True)})
    days, hours, minutes, seconds = (part * has for part, has in zip(parts, FORMS[form], strict=True))
    exact = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    read = read_time_limit(text)
    assert read is not None
    assert timedelta() <= read - exact < timedelta(minutes=1)
    assert read % timedelta(minutes=1) == timedelta()


@given(st.text(alphabet="0129:- aA\u0663", max_size=9))
def test_only_the_documented_forms_are_read(text: str) -> None:
    assert (read_time_limit(text) is not None) == is_documented(text.strip())


@given(
    st.timedeltas(timedelta(), timedelta(days=400)).map(lambda limit: timedelta(minutes=limit // timedelta(minutes=1)))
)
def test_a_limit_that_is_shown_reads_as_itself(limit: timedelta) -> None:
    assert read_time_limit(write_time(limit)) == limit


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("90", timedelta(minutes=90)),
        ("1:30", timedelta(minutes=2)),
        ("4:00:00", timedelta(hours=4)),
        ("1-12", timedelta(days=1, hours=12)),
        ("2-0", timedelta(days=2)),
        ("1-0:30", timedelta(days=1, minutes=30)),
        ("0-0:0:1", timedelta(minutes=1)),
        ("4h", None),
        ("-1", None),
        ("UNLIMITED", None),
        ("1-", None),
        ("", None),
    ],
)
def test_examples(text: str, limit: timedelta | None) -> None:
    assert read_time_limit(text) == limit


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(seconds=59), "0:59"),
        (timedelta(minutes=30), "30:00"),
        (timedelta(hours=1), "1:00:00"),
        (timedelta(days=1, hours=2, minutes=3, seconds=4), "1-02:03:04"),
    ],
)
def test_shown_as_in_slurms_tables(duration: timedelta, text: str) -> None:
    assert write_time(duration) == text

"""Free cards over time as a picture."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_dev.display.timeline import cells, timeline
from gpu_dev.wire.bookings import Availability, TypeAvailability

START = datetime(2026, 11, 21, 9, tzinfo=UTC)


def _found(*kinds: tuple[str, int, list[int]], step: timedelta = timedelta(hours=1)) -> Availability:
    count = max((len(free) for _, _, free in kinds), default=1)
    items = [TypeAvailability(gpu_type=name, gpus=gpus, free=free) for name, gpus, free in kinds]
    return Availability(start=START, end=START + step * count, step=step, items=items)


@given(st.lists(st.integers(0, 20), min_size=1, max_size=200), st.integers(1, 80))
def test_a_cell_says_what_is_free_in_all_of_its_time(free: list[int], width: int) -> None:
    row = cells(free, width)
    per_cell = -(-len(free) // width)
    assert len(row) <= width
    assert row == [min(free[at * per_cell : (at + 1) * per_cell]) for at in range(len(row))]


def test_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    picture = timeline(_found(("h100", 16, [16] * 6 + [0] * 6 + [3] * 12), ("t4", 2, [2] * 24)), 60)
    lines = picture.splitlines()
    assert lines[0].split()[:2] == ["09:00", "15:00"] or lines[0].lstrip().startswith("09:00")
    assert lines[1] == "h100 (16)  ++++++......333333333333"
    assert lines[2] == "t4 (2)     222222222222222222222222"
    assert lines[4] == "Sat 21 Nov 2026 09:00 to Sun 22 Nov 2026 09:00 UTC."
    assert "One character is 1 hour: " in lines[5]


def test_marks_of_several_days_name_the_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    marks = timeline(_found(("h100", 4, [4] * 72)), 90).splitlines()[0]
    assert "21 Nov 09:00" in marks
    assert "22 Nov" in marks


@given(st.integers(1, 400), st.integers(20, 200))
def test_marks_stand_above_their_columns_and_fit(count: int, width: int) -> None:
    found = _found(("h100", 4, [4] * count), step=timedelta(minutes=10))
    lines = timeline(found, width).splitlines()
    assert len(lines[0]) <= max(len(lines[1]), len("h100 (4)  09:00"))


def test_a_character_is_whole_steps_also_where_the_last_is_cut() -> None:
    found = _found(("h100", 4, [4] * 101), step=timedelta(minutes=30))
    assert "One character is 1 hour: " in timeline(found, 70)


def test_without_cards_it_says_where_to_look() -> None:
    assert "gpu-dev nodes" in timeline(_found(), 80)


def test_a_long_character_is_named_in_hours_and_minutes() -> None:
    found = _found(("h100", 4, [4] * 500), step=timedelta(minutes=17))
    assert "One character is 1 hour 25 minutes: " in timeline(found, 120)

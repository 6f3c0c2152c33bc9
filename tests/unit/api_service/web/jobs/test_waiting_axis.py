"""How far the picture of a wait reaches, and its ticks."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import example, given
from hypothesis import strategies as st

from api_service.web.jobs.waiting_axis import end_of_axis, ticks
from reservation_core.domain.calendar import length_micros, to_micros, to_moment

NOW = datetime(2030, 3, 30, 22, 20, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")
START = to_micros(NOW)
HOUR = length_micros(timedelta(hours=1))


@given(st.integers(0, 500 * HOUR), st.integers(1, 2000 * HOUR))
def test_the_wait_is_in_sight_and_so_is_the_beginning_of_the_slot(wait: int, length: int) -> None:
    slot = (START + wait, START + wait + length)
    end = end_of_axis(START, slot, length)
    assert slot[0] < end
    assert wait <= HOUR or (end - START) <= 2.2 * wait
    assert end_of_axis(START, None, length) == START + 24 * HOUR


@given(st.integers(HOUR // 60, 3000 * HOUR))
@example(8 * HOUR)
def test_ticks_are_few_and_round_on_the_clock_of_the_wall(length: int) -> None:
    """Clocks go forward in the night: two o'clock is left out."""
    found = ticks(START, START + length, BERLIN)
    assert len(found) <= 6
    assert [tick.at for tick in found] == sorted({tick.at for tick in found})
    for tick in found:
        wall = to_moment(tick.at).astimezone(BERLIN)
        assert START < tick.at < START + length
        assert tick.words == (f"{wall:%a} {wall.day}" if (wall.hour, wall.minute) == (0, 0) else f"{wall:%H:%M}")
        assert wall.minute % 5 == 0
    if length >= 2 * HOUR:
        assert found

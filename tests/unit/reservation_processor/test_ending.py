"""How long the leader rests between two looks at the clock."""

from datetime import timedelta

import pytest

from reservation_processor.ending import EVERY_S, LEAST_S, rest_s
from tests.clocks import START


@pytest.mark.parametrize(
    ("left_s", "rest"),
    [(None, EVERY_S), (3600.0, EVERY_S), (0.4, 0.4), (0.0, LEAST_S), (-30.0, LEAST_S)],
)
def test_the_next_end_is_waited_for_but_no_longer_than_a_second(left_s: float | None, rest: float) -> None:
    next_end = None if left_s is None else START + timedelta(seconds=left_s)
    assert rest_s(next_end, START) == pytest.approx(rest)

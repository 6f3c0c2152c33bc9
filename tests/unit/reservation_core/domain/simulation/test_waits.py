"""The summary of a replay."""

from datetime import timedelta

import pytest

from reservation_core.domain.simulation.waits import Ended, summary

HOUR = 3600.0


def test_waits_use_and_promises_by_hand() -> None:
    jobs = [
        Ended(1, 1, waited=0, ran=HOUR),
        Ended(1, 2, waited=HOUR, ran=HOUR, ahead=2 * HOUR),
        Ended(2, 1, waited=5 * HOUR, ran=60, ahead=-1),
    ]
    said = summary(jobs, 4, timedelta(hours=2))
    assert (said.jobs, said.mean, said.median, said.longest) == (3, 2 * HOUR, HOUR, 5 * HOUR)
    assert said.by_size == {1: 2.5 * HOUR, 2: HOUR}
    assert said.by_user == {1: 0.5 * HOUR, 2: 5 * HOUR}
    assert said.worst_user == pytest.approx(5 / 2.75)
    assert said.broken == 1
    assert said.ahead == 0
    assert said.waits == (0, HOUR, 5 * HOUR)
    assert said.used == pytest.approx((3 * HOUR + 60) / (8 * HOUR))
    # The last ran for a minute, and counts as ten.
    assert said.slowdown == pytest.approx((1 + 2 + (5 * HOUR + 60) / 600) / 3)


def test_nothing_is_said_about_no_job() -> None:
    with pytest.raises(ValueError, match="no job ran"):
        summary([], 4, timedelta(hours=1))

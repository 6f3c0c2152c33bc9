"""Waits as they are predicted, made as long as they were in truth."""

import random

from reservation_core.domain.planning.predictions.wait_calibration import ENOUGH, LEVELS, WaitCalibration


def test_nothing_is_said_of_waits_of_which_too_little_is_known() -> None:
    calibration = WaitCalibration()
    for _ in range(ENOUGH - 1):
        calibration.learn(5000, 5000)
    assert calibration.waits(5000) is None
    calibration.learn(5000, 5000)
    assert calibration.waits(5000) == [5000, 5000]
    # Short ones are compared among themselves.
    assert calibration.waits(1000) is None


def test_quantiles_of_the_ratios_make_p50_and_p90() -> None:
    calibration = WaitCalibration()
    for number in range(100):
        calibration.learn(7140, 7200 * (number + 1) / 100 - 60)
    waits = calibration.waits(14340)
    assert waits is not None
    p50, p90 = waits
    assert p50 is not None
    assert p90 is not None
    assert abs(p50 - 7140) < 300
    assert abs(p90 - 12900) < 300


def test_after_many_wrong_ones_only_the_promise_will_do() -> None:
    calibration = WaitCalibration()
    for _ in range(ENOUGH):
        calibration.learn(5000, 5000)
    for _ in range(100):
        calibration.judge(0.9, right=False)
    assert calibration.waits(5000) == [5000, None]


def test_the_levels_are_kept_where_waits_grow_longer_and_longer() -> None:
    chance = random.Random(1)
    calibration = WaitCalibration()
    right = dict.fromkeys(LEVELS, 0)
    asked = 0
    for number in range(3000):
        real = 4000 * chance.lognormvariate(0, 1) * 1.001**number
        waits = calibration.waits(4000)
        if waits is not None:
            asked += 1
            for level, wait in zip(LEVELS, waits, strict=True):
                by_then = wait is None or real <= wait
                right[level] += by_then
                calibration.judge(level, right=by_then)
        calibration.learn(4000, real)
    assert abs(right[0.5] / asked - 0.5) < 0.02
    assert abs(right[0.9] / asked - 0.9) < 0.02

"""Errors that repeat quarantine a GPU, against an oracle that looks at each minute by hand."""

import random
from datetime import UTC, datetime, timedelta

import pytest

from reservation_core.domain.gpu_use.gpu_errors import PROGRAM_XIDS, GpuError, QuarantineRule, quarantine_reason

NOW = datetime(2030, 1, 2, tzinfo=UTC)
HOUR = timedelta(hours=1)
RULE = QuarantineRule(3, HOUR)


def at(seconds_ago: float, xid: int | None = 79, ecc: int | None = None) -> GpuError:
    return GpuError(NOW - timedelta(seconds=seconds_ago), xid, ecc)


def test_errors_that_repeat_are_named() -> None:
    reason = quarantine_reason([at(3000), at(1200, 48, 2), at(10, None, 1)], RULE, NOW)
    assert reason == (
        "3 errors within 1 h: Xid 79 at 2030-01-01T23:10:00Z, Xid 48 and 2 uncorrected ECC at 2030-01-01T23:40:00Z, "
        "1 uncorrected ECC at 2030-01-01T23:59:50Z"
    )
    many = quarantine_reason([at(60 * n) for n in range(50)], RULE, NOW)
    assert many is not None
    assert many.startswith("50 errors within 1 h: 45 more, Xid 79 at")
    assert len(many) < 500


@pytest.mark.parametrize(
    "errors",
    [
        [],
        [at(3000), at(10)],
        [at(3600), at(1200), at(10)],  # one is too old
        [at(-10), at(1200), at(10)],  # one is of the future
        [at(69), at(40), at(10)],  # one fault, reported several times
        [at(3000, 13), at(1200, 31), at(600, 43), at(10, 45)],  # programs that failed
    ],
)
def test_too_few_errors_are_no_reason(errors: list[GpuError]) -> None:
    assert quarantine_reason(errors, RULE, NOW) is None


def oracle(errors: list[GpuError], rule: QuarantineRule) -> bool:
    """Walk through the window second by second."""
    guilty = {
        int((NOW - error.at).total_seconds())
        for error in errors
        if error.ecc_errors or (error.xid is not None and error.xid not in PROGRAM_XIDS)
    }
    occasions, until = 0, None
    for ago in range(int(rule.window.total_seconds()) - 1, -1, -1):
        if ago in guilty and (until is None or ago <= until):
            occasions, until = occasions + 1, ago - 60
    return occasions >= rule.occasions


def test_random_errors_against_the_oracle() -> None:
    chance, quarantined = random.Random(51), 0
    for _ in range(3000):
        rule = QuarantineRule(chance.randrange(1, 5), timedelta(minutes=chance.choice([2, 10, 60])))
        span = int(1.3 * rule.window.total_seconds())
        errors = [
            at(
                chance.randrange(-30, span),
                chance.choice([None, 13, 31, 43, 45, 48, 79, 94, 95]),
                chance.choice([None, None, 1, 7]),
            )
            for _ in range(chance.randrange(12))
        ]
        reason = quarantine_reason(errors, rule, NOW)
        assert (reason is not None) == oracle(errors, rule), (rule, errors)
        quarantined += reason is not None
    assert 300 < quarantined < 2700

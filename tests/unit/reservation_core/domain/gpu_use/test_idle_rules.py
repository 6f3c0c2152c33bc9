"""The rule about idle GPUs as people write it."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.gpu_use.idle_rules import IdleRule, IdleThen, gentlest, typed_idle

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("10%,1h,30m,release", IdleRule(0.1, HOUR, 30 * MINUTE, IdleThen.RELEASE)),
        ("Release 2h, 5.5%", IdleRule(0.055, 2 * HOUR, 30 * MINUTE, IdleThen.RELEASE)),
        ("2h", IdleRule(0.1, 2 * HOUR, 30 * MINUTE, IdleThen.WARN)),
        ("warn", IdleRule()),
        *(
            (wrong, None)
            for wrong in ("", ",", "soon", "1h,1h,1h", "warn,release", "0%", "101%", "-1%", "nan%", "%", "5%,6%", "0.1")
        ),
    ],
)
def test_it_is_typed_in_short(text: str, rule: IdleRule | None) -> None:
    assert typed_idle(text) == rule


@given(st.integers(1, 1000), st.integers(60, 86_400), st.integers(60, 86_400), st.sampled_from(IdleThen))
def test_what_is_shown_can_be_typed(below: int, window: int, grace: int, then: IdleThen) -> None:
    rule = IdleRule(below / 1000, timedelta(seconds=window), timedelta(seconds=grace), then)
    assert typed_idle(str(rule)) == rule


def test_gpus_of_several_types_have_the_gentlest_rule() -> None:
    strict, gentle = IdleRule(0.2, MINUTE, HOUR, IdleThen.RELEASE), IdleRule(0.1, HOUR, MINUTE)
    assert gentlest([strict]) == strict
    assert gentlest([strict, gentle]) == IdleRule(0.1, HOUR, HOUR, IdleThen.WARN)
    back = IdleRule(0.3, MINUTE, MINUTE, IdleThen.REQUEUE)
    assert gentlest([strict, back]) == IdleRule(0.2, MINUTE, HOUR, IdleThen.REQUEUE)
    assert gentlest([strict, None]) is None
    assert gentlest([]) is None

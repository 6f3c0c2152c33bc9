"""Rules and limits in tables: values as they are typed."""

import pytest
from msgspec import convert

from gpu_dev.display.calendar_views import format_rules, limit_of
from gpu_dev.inputs.durations import parse_duration
from gpu_dev.wire.policy import LimitOut, RulesIn


def test_rules_are_shown_as_they_are_typed() -> None:
    rules = {
        "max_gpus": 4,
        "max_gpu_hours_per_week": 100.0,
        "max_duration": "P7D",
        "max_advance": "P1Y",
        "inactivity": "PT1H30M",
        "cooldown": "unlimited",
        "cost_per_gpu_hour": "2.50 EUR",
        "order": "area",
        "idle": {"below": 0.125, "window": "PT1H", "grace": "PT30M", "then": "release"},
        "relaxed_if_starts_within": [{"within": "PT2H", "lifts": ["max_gpus", "max_duration"]}],
        "booking_required": True,
    }
    assert format_rules(convert(rules, RulesIn)) == (
        "max_gpus=4, max_gpu_hours_per_week=100, max_duration=7d, max_advance=365d, cooldown=unlimited, "
        "inactivity=1h30m, cost_per_gpu_hour=2.50 EUR, order=area, idle=12.5%,1h,30m,release, "
        "relaxed_if_starts_within=2h lifts max_gpus max_duration, booking_required=yes"
    )


@pytest.mark.parametrize(
    ("value", "shown"), [("P7D", "7d"), (100.0, "100"), (2.5, "2.5"), (6, "6"), (None, "no limit")]
)
def test_a_limit_is_shown_as_it_is_typed(value: str | float | None, shown: str) -> None:
    assert limit_of(LimitOut(rule="max_duration", value=value, used=None, scope="default")) == shown


def test_a_shown_length_is_read_back() -> None:
    shown = limit_of(LimitOut(rule="max_duration", value="P7DT1H", used=None, scope="default"))
    assert parse_duration(shown) == parse_duration("169h")

"""What GPU-hours cost: exact sums, one for each unit."""

import re
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.policy.limits import Policy, PolicyRule, Rules
from reservation_core.domain.policy.nouns import Scope
from reservation_core.domain.policy.prices import (
    PRICE_PATTERN,
    Money,
    exact_amount,
    rounded_cost,
    sum_costs,
    typed_price,
)
from reservation_core.domain.policy.usage import GpuTime, UsageLine, UsagePart, price_parts

EUR, CREDIT = Money(Decimal("2.50"), "EUR"), Money(Decimal(1), "credit")


def held(hours: int) -> GpuTime:
    return GpuTime(held=Decimal(3600 * hours))


@given(st.from_regex(PRICE_PATTERN, fullmatch=True))
def test_a_price_reads_back_as_it_was_written(text: str) -> None:
    assert text == typed_price(text) == typed_price(text.replace(" ", ""))
    # But for zeros before the amount.
    assert re.fullmatch(f"0*{re.escape(str(Money.parse(text)))}", text)


@pytest.mark.parametrize("text", ["", "EUR", "2.50", "-1 EUR", "1e3 EUR", "1,5 EUR", "1000000 EUR", "1 EUR h", "٣ EUR"])
def test_what_is_no_price_is_none(text: str) -> None:
    assert typed_price(text) is None


def test_sums_are_exact_and_have_one_unit_each() -> None:
    tenth = Money(Decimal("0.1"), "EUR")
    assert sum_costs([tenth, CREDIT, tenth, tenth]) == (Money(Decimal("0.3"), "EUR"), CREDIT)


@pytest.mark.parametrize(
    ("amount", "data", "people"),
    [
        ("12.4", "12.40", "12.40 EUR"),
        ("1240.5", "1240.50", "1,240.50 EUR"),
        ("0", "0.00", "0.00 EUR"),
        ("0.0012345678", "0.001235", "< 0.01 EUR"),
        ("200", "200.00", "200.00 EUR"),
    ],
)
def test_amounts_for_programs_and_for_people(amount: str, data: str, people: str) -> None:
    assert f"{exact_amount(Decimal(amount)):f}" == data
    assert rounded_cost(Decimal(amount), "EUR") == people


def test_each_part_costs_what_its_most_specific_rule_says() -> None:
    policy = Policy(
        PolicyRule(Scope.parse(scope), Rules(cost_per_gpu_hour=Money.parse(price)))
        for scope, price in (
            ("default", "1 EUR"),
            ("gpu_type:h100", "2.50 EUR"),
            ("project:charity", "0 EUR"),
            ("user:guest,gpu_type:h100", "9 credits"),
        )
    )
    parts = [
        UsagePart("ann", "ann", None, "h100", held(2)),
        UsagePart("ann", "ann", "charity", "h100", held(8)),
        UsagePart("ann", "ann", None, "t4", held(3)),
        UsagePart("guest", "guest", None, "h100", held(1)),
        UsagePart("guest", "guest", None, "t4", held(1)),
    ]
    report = price_parts(parts, policy)
    assert report.lines == [
        UsageLine("ann", held(13), (Money(Decimal(8), "EUR"),)),
        UsageLine("guest", held(2), (Money(Decimal(1), "EUR"), Money(Decimal(9), "credits"))),
    ]
    assert report.costs == (Money(Decimal(9), "EUR"), Money(Decimal(9), "credits"))


def test_what_no_rule_prices_has_no_cost() -> None:
    policy = Policy([PolicyRule(Scope(gpu_type="h100"), Rules(cost_per_gpu_hour=EUR))])
    assert policy.has_prices
    report = price_parts([UsagePart(None, "ann", None, "t4", held(1))], policy)
    assert (report.lines, report.costs) == ([UsageLine(None, held(1))], ())

"""Prices of GPU-hours, and costs by them: exact decimals in a currency or another unit."""

import re
from collections import defaultdict
from collections.abc import Iterable
from decimal import Decimal
from typing import NamedTuple

_AMOUNT = r"[0-9]{1,6}(?:\.[0-9]{1,6})?"
_UNIT = "[A-Za-zÀ-ÖØ-öø-ɏ€£$¥]{1,12}"
PRICE_PATTERN = f"{_AMOUNT} {_UNIT}"
"""A price as rules have it: `2.50 EUR`."""
_HOUR = Decimal(3600)
_SMALLEST = Decimal("0.000001")
_CENT = Decimal("0.01")


class Money(NamedTuple):
    """An amount of a unit, such as EUR or credits. A price is one per GPU-hour."""

    amount: Decimal
    unit: str

    def __str__(self) -> str:
        return f"{self.amount:f} {self.unit}"

    @classmethod
    def parse(cls, text: str) -> "Money":
        """Read a text of `PRICE_PATTERN`."""
        amount, _, unit = text.partition(" ")
        return cls(Decimal(amount), unit)

    def of_time(self, gpu_seconds: Decimal) -> "Money":
        """The cost of GPU-time at this price."""
        return Money(self.amount * gpu_seconds / _HOUR, self.unit)


def typed_price(text: str) -> str | None:
    """A price that somebody typed, perhaps without the space, as rules have it; None for what is none."""
    price = re.fullmatch(f"({_AMOUNT}) ?({_UNIT})", text)
    return None if price is None else f"{price[1]} {price[2]}"


def sum_costs(costs: Iterable[Money]) -> tuple[Money, ...]:
    """Sums, one for each unit, in the order of units."""
    sums: defaultdict[str, Decimal] = defaultdict(Decimal)
    for cost in costs:
        sums[cost.unit] += cost.amount
    return tuple(Money(amount, unit) for unit, amount in sorted(sums.items()))


def exact_amount(amount: Decimal) -> Decimal:
    """An amount to a millionth, with two decimals or more."""
    whole = amount.quantize(_SMALLEST).normalize()
    return whole if whole.as_tuple().exponent <= -2 else whole.quantize(_CENT)  # type: ignore[operator]  # finite


def rounded_cost(amount: Decimal, unit: str) -> str:
    """A cost for people: `1,240.50 EUR`."""
    return f"< 0.01 {unit}" if 0 < amount < _CENT else f"{amount:,.2f} {unit}"

"""What usage costs, on random ledgers: against an oracle, however much of it is summed up."""

from collections import defaultdict
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from reservation_core.adapters.postgres.policy.usage import Usage
from reservation_core.domain.policy.limits import Policy, PolicyRule, Rules
from reservation_core.domain.policy.nouns import Scope, UsageBy
from reservation_core.domain.policy.prices import Money, exact_amount
from reservation_core.domain.policy.usage import UsageReport
from tests.integration.reservation_core.adapters.postgres.policy.test_usage import Ledger, overlap

PRICES = Policy(
    PolicyRule(Scope.parse(scope), Rules(cost_per_gpu_hour=Money.parse(price)))
    for scope, price in (("gpu_type:h100", "2.35 EUR"), ("project:vision", "0.10 EUR"), ("user:eve", "3 credits"))
)


def costs(report: UsageReport) -> dict[str | None, dict[str, Decimal]]:
    return {line.key: {cost.unit: exact_amount(cost.amount) for cost in line.costs} for line in report.lines}


def expected(ledger: Ledger, by: UsageBy, first: datetime, last: datetime) -> dict[str | None, dict[str, Decimal]]:
    found: dict[str | None, dict[str, Decimal]] = {}
    for row in ledger.rows:
        held = overlap(row.start, row.end, first, last)
        if held:
            line = found.setdefault(getattr(row, by.value), defaultdict(Decimal))
            price = PRICES.price(row.user, row.project, row.gpu_type)
            if price is not None:
                line[price.unit] += price.amount * held / 3600
    return {key: {unit: exact_amount(cost) for unit, cost in line.items()} for key, line in found.items()}


@pytest.mark.parametrize("number", range(4))
async def test_costs_are_the_oracles_and_times_are_as_without_prices(
    seed: Any, engine: AsyncEngine, number: int
) -> None:
    ledger = Ledger(seed, number)
    await ledger.fill()
    spans = [(seed.now - timedelta(days=9), seed.now), (seed.now - timedelta(hours=43), seed.now - timedelta(hours=1))]
    for summed in (False, True):
        async with engine.begin() as connection:
            usage = Usage(connection)
            if summed:
                assert await usage.sum_up_usage(seed.now, 1000, 1_000_000)
            for first, last in spans:
                for by in UsageBy:
                    priced = await usage.report(by, first, last, None, seed.now, PRICES)
                    assert costs(priced) == expected(ledger, by, first, last)
                    plain = await usage.report(by, first, last, None, seed.now)
                    assert [(line.key, line.time) for line in priced.lines] == [
                        (line.key, line.time) for line in plain.lines
                    ]
                    assert plain.costs == ()

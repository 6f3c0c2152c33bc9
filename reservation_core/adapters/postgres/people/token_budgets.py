"""Budgets of tokens in PostgreSQL. A trigger records refunds (see migration 0030)."""

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Row

from reservation_core.adapters.postgres.statement_runner import StatementRunner
from reservation_core.domain.people.token_budgets import Ask, Budget


class Budgets(StatementRunner):
    """The budgets of a token and of the tokens that it was made with, always in the order of creation."""

    async def hold(self, budget_id: str) -> list[Budget]:
        """Lock and read a budget and its predecessors until the transaction ends. These locks must be the last ones."""
        locked = await self._run("hold_budgets", id=budget_id)
        ids = list(locked.scalars())
        return _budgets(await self._run("settle_budgets", ids=ids))

    async def view(self, budget_id: str, *, without: str | None = None) -> list[Budget]:
        """A budget and its predecessors, without locks; with what the waiting job `without` would give back."""
        return _budgets(await self._run("view_budgets", id=budget_id, without=without))

    async def charge(self, line: Sequence[Budget], asks: Sequence[Ask]) -> None:
        """Charge every locked budget in full. Unused GPU time is refunded at the end of the reservation."""
        await self._run(
            "charge_budgets",
            ids=[budget.token_id for budget in line],
            reservations=[ask.reservation_id for ask in asks],
            froms=[ask.start_us for ask in asks],
            tos=[ask.end_us for ask in asks],
        )

    async def sum_up_refunds(self, limit: int) -> int:
        """Subtract at most `limit` refunds from unlocked budgets; returns their number."""
        return int((await self._run("sum_up_refunds", limit=limit)).scalar_one())


def _budgets(rows: Iterable[Row[Any]]) -> list[Budget]:
    return [Budget(row.id, row.gpu_us, row.until, row.charged_us) for row in rows]

"""Budgets of tokens in PostgreSQL. A trigger notes what is given back (see migration 0030)."""

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.connection.queries import statement
from reservation_core.domain.people.token_budgets import Ask, Budget


class Budgets:
    """The budgets of a line of tokens, each made with the one before it; from the first to the last everywhere."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def hold(self, budget_id: str) -> list[Budget]:
        """Lock a budget and those before it, and read them: nobody else charges them until the transaction ends.

        These locks come last: whoever has one takes no other lock.
        """
        held = await self._connection.execute(statement("hold_budgets"), {"id": budget_id})
        ids = list(held.scalars())
        return _budgets(await self._connection.execute(statement("settle_budgets"), {"ids": ids}))

    async def view(self, budget_id: str) -> list[Budget]:
        """A budget and those before it as they are now, without locks."""
        return _budgets(await self._connection.execute(statement("view_budgets"), {"id": budget_id}))

    async def charge(self, line: Sequence[Budget], asks: Sequence[Ask]) -> None:
        """Charge budgets that are held: each pays for all of it.

        Unused GPU-time is given back when the reservation is over.
        """
        await self._connection.execute(
            statement("charge_budgets"),
            {
                "ids": [budget.token_id for budget in line],
                "reservations": [ask.reservation_id for ask in asks],
                "froms": [ask.start_us for ask in asks],
                "tos": [ask.end_us for ask in asks],
            },
        )

    async def sum_up_refunds(self, limit: int) -> int:
        """Take what was given back off counters of budgets that nobody has, at most `limit` rows; returns how many."""
        found = await self._connection.execute(statement("sum_up_refunds"), {"limit": limit})
        return int(found.scalar_one())


def _budgets(rows: Iterable[Row[Any]]) -> list[Budget]:
    return [Budget(row.id, row.gpu_us, row.until, row.charged_us) for row in rows]

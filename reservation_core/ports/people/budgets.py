"""Budgets of tokens, and what is charged to them."""

from collections.abc import Sequence
from typing import Protocol

from reservation_core.domain.people.token_budgets import Ask, Budget


class Budgets(Protocol):
    """The budgets of a line of tokens, each made with the one before it; from the first to the last everywhere."""

    async def hold(self, budget_id: str) -> list[Budget]:
        """A budget and those before it, which nobody else charges until the transaction ends.

        These locks come last: whoever has one takes no other lock.
        """
        ...

    async def view(self, budget_id: str) -> list[Budget]:
        """The same as they are now."""
        ...

    async def charge(self, line: Sequence[Budget], asks: Sequence[Ask]) -> None:
        """Charge budgets that are held. What is not used in the end is given back when the reservation is over."""
        ...

    async def sum_up_refunds(self, limit: int) -> int:
        """Take what was given back off the counters, at most `limit` rows of it; returns how many rows."""
        ...

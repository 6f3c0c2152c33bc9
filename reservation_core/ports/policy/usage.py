"""Who held GPUs for how long, by the ledger."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Protocol

from reservation_core.domain.policy.usage import UsageBy, UsageReport, UsageSeries

SUMMED_AFTER = timedelta(minutes=2)
"""What was given back is told row by row for so long: no question asked now is about the time before that."""


class Usage(Protocol):
    """Reports from the ledger, and the decayed usage that orders equals in the line."""

    async def report(
        self, by: UsageBy, start: datetime, end: datetime, user_id: int | None, now: datetime
    ) -> UsageReport:
        """What was held in [start, end) and before `now`, by a user or (None) by everybody."""
        ...

    async def series(
        self, by: UsageBy, start: datetime, end: datetime, step: timedelta, user_id: int | None, now: datetime
    ) -> UsageSeries:
        """The same in steps, those of `domain.policy.usage.steps_of`."""
        ...

    async def bring_shares_up(self, half_life: timedelta, now: datetime) -> None:
        """Count what was held since the last time into each user's decayed usage."""
        ...

    async def shares(self) -> Mapping[int, float]:
        """The decayed usage of each user (by id), in GPU-seconds as of the last time; who had nothing is absent."""
        ...

    async def sum_up_given_back(self, before: datetime, limit: int) -> int:
        """Add what was given back, at most `limit` rows of it, to the sums of its weeks; returns how many rows.

        Only what had ended by `before`.
        """
        ...

    async def sum_up_usage(self, before: datetime, limit: int, hours: int) -> int:
        """Sum up the usage of reservations that were over by `before`; returns how many they were, 0 when none is left.

        At most `limit`, and of no more than `hours` hours of cards together, unless one alone has more.
        Reports are the same before and after; they only become shorter to make.
        """
        ...

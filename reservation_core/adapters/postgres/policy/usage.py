"""Usage by the ledger, in PostgreSQL."""

from datetime import datetime, timedelta
from math import log
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.connection.queries import statement
from reservation_core.domain.policy.usage import (
    GpuTime,
    UsageBy,
    UsageLine,
    UsageReport,
    UsageSeries,
    partition_steps,
    steps_of,
)

_HALF_LIVES_BACK = 40
"""What is older weighs less than a billionth: it is not looked for."""


class Usage:
    """Reports from the ledger, and the decayed usage that orders equals in the line."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def report(
        self, by: UsageBy, start: datetime, end: datetime, user_id: int | None, now: datetime
    ) -> UsageReport:
        """What was held in [start, end) and before `now`, by a user or (None) by everybody."""
        end = min(end, now)
        if end <= start:
            return UsageReport(())
        found = await self.series(by, start, end, end - start, user_id, now)
        return UsageReport([UsageLine(key, times[0]) for key, times in found.lines])

    async def series(
        self, by: UsageBy, start: datetime, end: datetime, step: timedelta, user_id: int | None, now: datetime
    ) -> UsageSeries:
        """The same in steps, those of `domain.policy.usage.steps_of`; those that are not past have nothing."""
        steps = len(steps_of(start, end, step))
        end = min(end, now)
        if end <= start:
            return UsageSeries(())
        found = await self._connection.execute(
            statement("usage_report"), {"by": by.value, "user_id": user_id, **report_values(start, end, step)}
        )
        lines: dict[str | None, list[GpuTime]] = {}
        for row in found:
            lines.setdefault(row.key, [GpuTime()] * steps)[row.step] = GpuTime(row.held, row.used, row.wasted)
        # Not the server's order of words: pages go on after a key.
        return UsageSeries(sorted(lines.items(), key=lambda line: (line[0] is None, line[0] or "")))

    async def bring_shares_up(self, half_life: timedelta, now: datetime) -> None:
        """Count what was held since the last time into each user's decayed usage.

        A `now` that is not later than that changes nothing.
        """
        state = (await self._connection.execute(statement("lock_fair_shares"))).one()
        seconds = half_life.total_seconds()
        earliest = now - _HALF_LIVES_BACK * half_life
        if state.half_life_s != seconds:
            await self._connection.execute(statement("forget_fair_shares"))
            as_of = earliest
        else:
            as_of = max(state.as_of, earliest)
        if as_of >= now:
            return
        await self._connection.execute(
            statement("bring_shares_up"),
            {
                "as_of": as_of,
                "now": now,
                "half_life_s": seconds,
                "rate_s": seconds / log(2),
                "age_s": (now - as_of).total_seconds(),
            },
        )

    async def shares(self) -> dict[int, float]:
        """The decayed usage of each user (by id), in GPU-seconds as of the last time; who had nothing is absent."""
        return {row.user_id: row.usage for row in await self._connection.execute(statement("fair_shares"))}

    async def sum_up_given_back(self, before: datetime, limit: int) -> int:
        """Add what was given back, at most `limit` rows of it, to the sums of its weeks; returns how many rows.

        Only what had ended by `before`.
        """
        found = await self._connection.execute(statement("sum_up_given_back"), {"before": before, "limit": limit})
        return int(found.scalar_one())

    async def sum_up_usage(self, before: datetime, limit: int, hours: int) -> int:
        """Sum up the usage of reservations that were over by `before`; returns how many they were, 0 when none is left.

        At most `limit`, and of no more than `hours` hours of cards together, unless one alone has more.
        Reports are the same before and after; they only become shorter to make.
        """
        found = await self._connection.execute(statement("settled_usage"), {"before": before, "limit": limit})
        ids: list[str] = []
        for row in found:
            hours -= row.hours
            if ids and hours < 0:
                break
            ids.append(row.id)
        if ids:
            await self._connection.execute(statement("sum_up_usage"), {"ids": ids})
        return len(ids)


def report_values(start: datetime, end: datetime, step: timedelta) -> dict[str, Any]:
    """What a report of [start, end) is asked with, but for by what and whose."""
    edges, summed = partition_steps(steps_of(start, end, step))
    numbers = {(part.span, part.start, part.end): 0 for part in summed}
    numbers = {sums: number for number, sums in enumerate(numbers, start=1)}
    return {
        "start": start,
        "end": end,
        "step": step,
        "edge_steps": [edge.step for edge in edges],
        "edge_starts": [edge.start for edge in edges],
        "edge_ends": [edge.end for edge in edges],
        "sum_spans": [span.value for span, _, _ in numbers],
        "sum_starts": [begin for _, begin, _ in numbers],
        "sum_ends": [over for _, _, over in numbers],
        "term_steps": [part.step for part in summed],
        "term_sums": [numbers[part.span, part.start, part.end] for part in summed],
        "term_signs": [part.sign for part in summed],
    }

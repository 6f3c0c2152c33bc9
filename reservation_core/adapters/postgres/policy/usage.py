"""Usage by the ledger, in PostgreSQL."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from math import log
from typing import Any

from sqlalchemy import Row

from reservation_core.adapters.postgres.statement_runner import StatementRunner
from reservation_core.domain.policy.limits import NO_POLICY, Policy
from reservation_core.domain.policy.nouns import UsageBy
from reservation_core.domain.policy.usage import (
    GpuTime,
    UsageLine,
    UsagePart,
    UsageReport,
    UsageSeries,
    in_order,
    partition_steps,
    price_parts,
    steps_of,
)

_HALF_LIVES_BACK = 40
"""Older usage weighs less than a billionth and is ignored."""


class Usage(StatementRunner):
    """Usage reports from the ledger, and the decayed usage that orders jobs of equal priority in the queue."""

    async def report(
        self,
        by: UsageBy,
        start: datetime,
        end: datetime,
        user_id: int | None,
        now: datetime,
        policy: Policy = NO_POLICY,
    ) -> UsageReport:
        """Usage in [start, end) before `now`, of a user or (None) of all users, with its costs by the policy."""
        end = min(end, now)
        if end <= start:
            return UsageReport(())
        if policy.has_prices:
            rows = await self._rows(by, user_id, start, end, end - start, split=True)
            parts = (
                UsagePart(row.key, row.user_name, row.project, row.gpu_type, GpuTime(row.held, row.used, row.wasted))
                for row in rows
            )
            return price_parts(parts, policy)
        series = await self.series(by, start, end, end - start, user_id, now)
        return UsageReport([UsageLine(key, times[0]) for key, times in series.lines])

    async def series(
        self, by: UsageBy, start: datetime, end: datetime, step: timedelta, user_id: int | None, now: datetime
    ) -> UsageSeries:
        """The same in steps as by `domain.policy.usage.steps_of`; future steps are empty."""
        steps = len(steps_of(start, end, step))
        end = min(end, now)
        if end <= start:
            return UsageSeries(())
        rows = await self._rows(by, user_id, start, end, step, split=False)
        lines: dict[str | None, list[GpuTime]] = {}
        for row in rows:
            lines.setdefault(row.key, [GpuTime()] * steps)[row.step] = GpuTime(row.held, row.used, row.wasted)
        return UsageSeries([(key, lines[key]) for key in in_order(lines)])

    async def _rows(
        self, by: UsageBy, user_id: int | None, start: datetime, end: datetime, step: timedelta, *, split: bool
    ) -> Sequence[Row[Any]]:
        """The rows of a report; with `split`, one for each user, project and type of a line."""
        found = await self._run(
            "usage_report", by=by.value, user_id=user_id, split=split, **report_values(start, end, step)
        )
        return found.all()

    async def claim_digest(self, week: datetime, now: datetime) -> bool:
        """Note that the digests of a week are sent; false where that was done. Another claim waits for this one."""
        return bool((await self._run("claim_digest", week=week, now=now)).rowcount)

    async def update_shares(self, half_life: timedelta, now: datetime) -> None:
        """Add the usage since the last call to the decayed usage of every user."""
        state = (await self._run("lock_fair_shares")).one()
        seconds = half_life.total_seconds()
        earliest = now - _HALF_LIVES_BACK * half_life
        if state.half_life_s != seconds:
            await self._run("forget_fair_shares")
            as_of = earliest
        else:
            as_of = max(state.as_of, earliest)
        if as_of >= now:
            return
        await self._run(
            "update_shares",
            as_of=as_of,
            now=now,
            half_life_s=seconds,
            rate_s=seconds / log(2),
            age_s=(now - as_of).total_seconds(),
        )

    async def shares(self) -> dict[int, float]:
        """The decayed usage by user id, in GPU-seconds as of the last update; users without usage are absent."""
        return {row.user_id: row.usage for row in await self._run("fair_shares")}

    async def sum_up_given_back(self, before: datetime, limit: int) -> int:
        """Add at most `limit` holdings that ended by `before` to the weekly sums; returns their number."""
        return int((await self._run("sum_up_given_back", before=before, limit=limit)).scalar_one())

    async def sum_up_usage(self, before: datetime, limit: int, hours: int) -> int:
        """Sum up the usage of reservations that ended by `before`; returns their number.

        At most `limit`, with at most `hours` GPU-hours together, unless the first one has more. Reports do not change,
        but become cheaper.
        """
        rows = await self._run("settled_usage", before=before, limit=limit)
        ids: list[str] = []
        for row in rows:
            hours -= row.hours
            if ids and hours < 0:
                break
            ids.append(row.id)
        if ids:
            await self._run("sum_up_usage", ids=ids)
        return len(ids)


def report_values(start: datetime, end: datetime, step: timedelta) -> dict[str, Any]:
    """The parameters of a report of [start, end), without its grouping and user."""
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

"""All that predictions of starts have learnt from waits: one row, which the planner writes and dry runs read."""

from reservation_core.adapters.postgres.statement_runner import StatementRunner
from reservation_core.domain.planning.predictions.wait_calibration import LearntWaits


class LearntWaitsRow(StatementRunner):
    """The only row, if there is one."""

    async def read(self) -> LearntWaits | None:
        """All that is stored; None before anything was."""
        row = (await self._run("learnt_waits")).one_or_none()
        if row is None:
            return None
        ratios = (tuple(row.below_minute), tuple(row.below_hour), tuple(row.longer))
        return LearntWaits((row.p50_quantile, row.p90_quantile), ratios)

    async def store(self, epoch: int, learnt: LearntWaits) -> None:
        """Replace what is stored; nothing happens when the epoch is old."""
        p50, p90 = learnt.quantiles
        short, medium, long = map(list, learnt.ratios)
        await self._run(
            "store_learnt_waits", epoch=epoch, p50=p50, p90=p90, below_minute=short, below_hour=medium, longer=long
        )

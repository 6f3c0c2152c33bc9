"""The policy and what its users hold, read repeatedly for the extender."""

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from pod_scheduling.domain.extender.owner_quotas import LedgerHoldings
from reservation_core.adapters.postgres.policy.policies import Policies
from reservation_core.ports.policy.policies import CurrentPolicy
from reservation_core.runtime.reading.repeated_reading import RepeatedReading


class HoldingsReading(RepeatedReading[LedgerHoldings]):
    """Times are in seconds. Rules are read again only when they have changed."""

    def __init__(self, engine: AsyncEngine, every_s: float, patience_s: float) -> None:
        super().__init__(engine, every_s, patience_s, self._holdings, "what users hold")
        self._policy: CurrentPolicy | None = None

    async def _holdings(self, connection: AsyncConnection) -> LedgerHoldings:
        policies = Policies(connection)
        if self._policy is None or self._policy.revision != await policies.revision():
            self._policy = await policies.current()
        return LedgerHoldings(self._policy.policy, await policies.held_now())

"""Bookings during their slots, in PostgreSQL."""

from reservation_core.adapters.postgres.statement_runner import StatementRunner
from reservation_core.ports.policy.entitlements import Entitlement, FreeOfType, NodeOfBooking, PromisedGpu


class Entitlements(StatementRunner):
    """The GPUs that users may use now."""

    async def of_user(self, user_id: int, but_for: str | None) -> list[Entitlement]:
        """The user's bookings that are in their slot by the database's clock, by type; the latest end first.

        GPUs used by the pod with the uid `but_for` don't count.
        """
        values = {"user_id": user_id, "but_for": but_for}
        rows = await self._run("entitlements_of_user", **values)
        return [Entitlement(row.id, row.gpu_type, row.gpus, row.until, int(row.used)) for row in rows]

    async def nodes_of(self, booking_id: str, gpu_type: str, but_for: str | None) -> list[NodeOfBooking]:
        """The nodes of a booking in its slot, with its GPUs of a type, by name. `but_for` as in `of_user`."""
        values = {"booking_id": booking_id, "gpu_type": gpu_type, "but_for": but_for}
        rows = await self._run("nodes_of_booking", **values)
        return [NodeOfBooking(row.name, row.gpus, row.unused) for row in rows]

    async def free_of_types(self, gpu_type: str | None, gpus: int) -> list[FreeOfType]:
        """Types (None: all) with usable GPUs, and how long `gpus` of them stay free."""
        rows = await self._run("free_of_types", gpu_type=gpu_type, gpus=gpus)
        return [FreeOfType(row.gpu_type, row.cards, row.free, row.until) for row in rows]

    async def promised_cards(self) -> list[PromisedGpu]:
        """Every GPU of running jobs, open bookings and maintenance windows.

        Slots of waiting jobs are not included, as they can move.
        """
        rows = await self._run("promised_cards")
        return [PromisedGpu(row.node, row.card, row.id, row.starts_at, row.ends_at, row.held) for row in rows]

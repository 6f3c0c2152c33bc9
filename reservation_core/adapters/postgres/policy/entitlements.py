"""Bookings whose slot it is, in PostgreSQL."""

from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.connection.queries import statement
from reservation_core.ports.policy.entitlements import Entitlement, FreeOfType, NodeOfBooking, PromisedCard


class Entitlements:
    """What people may use now."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def of_user(self, user_id: int, but_for: str | None) -> list[Entitlement]:
        """The user's bookings whose slot it is now by the database's clock, by type; those that end last first.

        What the pod of the uid `but_for` uses is not counted.
        """
        values = {"user_id": user_id, "but_for": but_for}
        found = await self._connection.execute(statement("entitlements_of_user"), values)
        return [Entitlement(row.id, row.gpu_type, row.gpus, row.until, int(row.used)) for row in found]

    async def nodes_of(self, booking_id: str, gpu_type: str, but_for: str | None) -> list[NodeOfBooking]:
        """The nodes of a booking whose slot it is, with its cards of a type; by name. `but_for` as in `of_user`."""
        values = {"booking_id": booking_id, "gpu_type": gpu_type, "but_for": but_for}
        found = await self._connection.execute(statement("nodes_of_booking"), values)
        return [NodeOfBooking(row.name, row.gpus, row.unused) for row in found]

    async def free_of_types(self, gpu_type: str | None, gpus: int) -> list[FreeOfType]:
        """Each type (None: all) of which there are cards that get new work, and until when `gpus` of it stay free."""
        found = await self._connection.execute(statement("free_of_types"), {"gpu_type": gpu_type, "gpus": gpus})
        return [FreeOfType(row.gpu_type, row.cards, row.free, row.until) for row in found]

    async def promised_cards(self) -> list[PromisedCard]:
        """Every card that a running job has, that is booked, or that is in maintenance, for what has not ended yet.

        What waiting jobs were promised is not among them: that goes elsewhere when a card is taken.
        """
        found = await self._connection.execute(statement("promised_cards"))
        return [PromisedCard(row.node, row.card, row.id, row.starts_at, row.ends_at, row.held) for row in found]

"""What users have that is not over, in PostgreSQL."""

from typing import Any

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.connection.queries import statement
from reservation_core.domain.model import ReservationKind
from reservation_core.ports.people.belongings import Belonging


class Belongings:
    """What users have that is not over."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def waiting(self, user_id: int, limit: int) -> list[Belonging]:
        """Jobs that wait for GPUs, or are to wait again, and requests for bookings that wait or are offered some."""
        return [_belonging(row) for row in await self._rows("waiting_of_user", user_id, limit)]

    async def open(self, user_id: int, limit: int) -> list[Belonging]:
        """All jobs and bookings that are not over, but for jobs that are ending already."""
        return [_belonging(row) for row in await self._rows("open_of_user", user_id, limit)]

    async def left(self, user_id: int, limit: int) -> tuple[list[Belonging], int]:
        """All that is not over, the oldest first, and how many they are in all."""
        rows = await self._rows("left_of_user", user_id, limit)
        return [_belonging(row) for row in rows], rows[0].in_all if rows else 0

    async def _rows(self, name: str, user_id: int, limit: int) -> list[Row[Any]]:
        found = await self._connection.execute(statement(name), {"user_id": user_id, "limit": limit})
        return list(found)


def _belonging(row: Row[Any]) -> Belonging:
    return Belonging(row.id, ReservationKind(row.kind), row.status, row.name, row.starts_at, row.ends_at)

"""Open jobs and bookings of users, in PostgreSQL."""

from typing import Any

from sqlalchemy import Row

from reservation_core.adapters.postgres.statement_runner import StatementRunner
from reservation_core.domain.statuses import ReservationKind
from reservation_core.ports.people.belongings import Belonging


class Belongings(StatementRunner):
    """Open jobs and bookings of users."""

    async def waiting(self, user_id: int, limit: int) -> list[Belonging]:
        """Jobs that wait for GPUs or will be requeued, and bookings on the waitlist."""
        return [_belonging(row) for row in await self._rows("waiting_of_user", user_id, limit)]

    async def open(self, user_id: int, limit: int) -> list[Belonging]:
        """All open jobs and bookings, except jobs that are ending already."""
        return [_belonging(row) for row in await self._rows("open_of_user", user_id, limit)]

    async def left(self, user_id: int, limit: int) -> tuple[list[Belonging], int]:
        """Open jobs and bookings, oldest first, and their total number."""
        rows = await self._rows("left_of_user", user_id, limit)
        return [_belonging(row) for row in rows], rows[0].in_all if rows else 0

    async def _rows(self, name: str, user_id: int, limit: int) -> list[Row[Any]]:
        return list(await self._run(name, user_id=user_id, limit=limit))


def _belonging(row: Row[Any]) -> Belonging:
    return Belonging(row.id, ReservationKind(row.kind), row.status, row.name, row.starts_at, row.ends_at)

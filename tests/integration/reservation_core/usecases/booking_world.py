"""The small world of use cases with bookings in it, and a database whose clock is set."""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from reservation_core.adapters.identity.ids import RandomIds
from reservation_core.contracts.bookings import BookingCreate
from reservation_core.domain.bookings.due_changes import BookingRules
from reservation_core.domain.bookings.nouns import Booking
from reservation_core.domain.statuses import Role
from reservation_core.ports.people.identities import Principal
from reservation_core.usecases.bookings.book import book
from reservation_core.usecases.bookings.keep_bookings import BookingKeeping, BookingsReport, keep_bookings
from tests.database.database_clock import DatabaseClock
from tests.integration.reservation_core.usecases.world import World

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
KEEPING = BookingKeeping(BookingRules((86_400, 3600, 600), (86_400, 3600, 600)), None)
GRACE = replace(KEEPING, no_show_grace=30 * MINUTE)


@dataclass
class BookingWorld:
    """Two nodes of two h100 each; `time` is the database's clock, which the components' clock follows."""

    world: World
    time: DatabaseClock
    engine: AsyncEngine
    keeping: BookingKeeping = KEEPING
    ids: RandomIds = field(default_factory=RandomIds)
    admin: Principal | None = None

    async def person(self, name: str, role: Role = Role.USER) -> Principal:
        """Somebody else."""
        async with self.world.uow() as uow:
            user = await uow.identities.create_user(name, role, self.time.at)
        return Principal(user.id, name, role, f"tok-{name}", None)

    async def root(self) -> Principal:
        """An administrator, always the same."""
        if self.admin is None:
            self.admin = await self.person("root", Role.ADMIN)
        return self.admin

    async def booked(self, start: datetime, length: timedelta = HOUR, **fields: object) -> Booking:
        """A booking of one GPU by alice, made now; fields of BookingCreate, and `who`."""
        who = fields.pop("who", self.world.who)
        assert isinstance(who, Principal)
        request = BookingCreate.model_validate(
            {"gpus": 1, "start": start.isoformat(), "duration": int(length.total_seconds()), **fields}
        )
        async with self.world.uow() as uow:
            return await book(uow, who, request, self.ids)

    async def at(self, when: datetime) -> BookingsReport:
        """It becomes this time, and somebody looks."""
        await self.time.set(when)
        self.world.clock.at = when
        return await self.look()

    async def look(self) -> BookingsReport:
        """One run."""
        return await keep_bookings(self.world.uow, self.ids, self.keeping)

    async def booking(self, booking_id: str) -> Booking:
        """How it stands."""
        async with self.world.uow() as uow:
            found = await uow.bookings.view(booking_id)
        assert found is not None
        return found

    async def rows(self, sql: str, **values: object) -> list[dict[str, Any]]:
        """What a query answers."""
        async with self.engine.begin() as connection:
            return [dict(row) for row in (await connection.execute(text(sql), values)).mappings()]

    async def kinds(self, reservation_id: str) -> list[str]:
        """The kinds of its events."""
        found = await self.rows("SELECT kind FROM events WHERE reservation_id = :id ORDER BY id", id=reservation_id)
        return [row["kind"] for row in found]

    async def told(self, reservation_id: str, kind: str) -> dict[str, Any]:
        """What its newest event of this kind says."""
        found = await self.rows(
            "SELECT data FROM events WHERE reservation_id = :id AND kind = :kind ORDER BY id DESC LIMIT 1",
            id=reservation_id,
            kind=kind,
        )
        data: dict[str, Any] = found[0]["data"]
        return data

    async def taken(self, reservation_id: str) -> list[tuple[datetime, datetime, bool]]:
        """Its rows in the ledger: from, to, and whether they are over."""
        found = await self.rows(
            "SELECT lower(during) AS s, upper(during) AS e, released_at IS NOT NULL AS over FROM allocations "
            "WHERE reservation_id = :id ORDER BY gpu_id",
            id=reservation_id,
        )
        return [(row["s"], row["e"], row["over"]) for row in found]

"""One look at all cards for everybody who looks at them at the same time."""

import asyncio
from datetime import datetime, timedelta

from api_service.web.fleet import Fleet, fleet_of, types_without_free, with_openings
from reservation_core.domain.bookings import Wanted
from reservation_core.ports.clock import Clock
from reservation_core.ports.transactions import UnitOfWork, UnitOfWorkFactory
from reservation_core.usecases.find_slots import find_slots

SOON = timedelta(hours=1)
"""A card that somebody has within this time is free, but booked soon."""
OLDEST = timedelta(seconds=15)
"""Time itself changes things (a slot begins), without anything being recorded."""
OPENINGS_EVERY = timedelta(seconds=10)
"""Finding free time in the whole calendar costs more than all the rest, and may be so much older."""
_OPENING = Wanted(1, 1, None, None)
_OPENING_LENGTH = timedelta(hours=1)
_OPENINGS_WITHIN = timedelta(days=7)


class FleetReader:
    """The fleet as it is now: read anew only when something has changed, and once for all who ask meanwhile."""

    def __init__(self, uow: UnitOfWorkFactory, clock: Clock) -> None:
        self._uow = uow
        self._clock = clock
        self._running: asyncio.Task[Fleet] | None = None
        self._next: asyncio.Task[Fleet] | None = None
        self._fleet: Fleet | None = None
        self._standing: tuple[object, ...] = ()
        self._openings_at: datetime | None = None

    async def fleet(self) -> Fleet:
        """All that was committed before this call is in it. Raises DatabaseUnavailableError."""
        if self._next is None:
            # What runs already may have begun before something that the caller knows of: theirs comes after it.
            self._next = asyncio.create_task(self._after(self._running))
            self._next.add_done_callback(_retrieved)
        return await asyncio.shield(self._next)

    async def _after(self, running: "asyncio.Task[Fleet] | None") -> Fleet:
        if running is not None:
            await asyncio.wait((running,))
        self._running, self._next = self._next, None
        async with self._uow() as uow:
            return await self._read(uow)

    async def _read(self, uow: UnitOfWork) -> Fleet:
        standing, now = await uow.events.standing(), self._clock.now()
        if self._fleet is not None and standing == self._standing and now - self._fleet.read_at < OLDEST:
            return self._fleet
        nodes = await uow.inventory.nodes_now()
        fleet = fleet_of(self._fleet, nodes, await uow.inventory.cards_now(SOON), now)
        if self._openings_are_old(fleet, now):
            # Without such a type nothing is searched, and what was found before is forgotten.
            full = types_without_free(fleet)
            slots = await find_slots(uow, _OPENING, _OPENING_LENGTH, None, now + _OPENINGS_WITHIN) if full else []
            fleet, self._openings_at = with_openings(fleet, slots), now
        self._fleet, self._standing = fleet, standing
        return fleet

    def _openings_are_old(self, fleet: Fleet, now: datetime) -> bool:
        if self._openings_at is None or now - self._openings_at >= OPENINGS_EVERY:
            return True
        return types_without_free(fleet) != sorted(fleet.openings)


def _retrieved(task: "asyncio.Task[Fleet]") -> None:
    """Whoever asked may have gone: nobody else has to hear of an error."""
    if not task.cancelled():
        task.exception()

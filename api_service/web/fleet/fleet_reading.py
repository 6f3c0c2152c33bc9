"""One read of all GPUs for everybody who looks at them at the same time."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

import structlog

from api_service.web.fleet.fleet import FleetPicture, fleet_of, openings_of, with_openings
from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.domain.bookings.nouns import Wanted
from reservation_core.ports.clock import Clock
from reservation_core.ports.nodes.cards_now import SOON
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.runtime.reading.shared_reading import SharedReading
from reservation_core.usecases.bookings.find_slots import find_slots

OLDEST = timedelta(seconds=15)
"""Time alone changes the fleet (a slot begins), without an event."""
OPENINGS_EVERY = timedelta(seconds=10)
"""Searching the whole calendar for free time costs more than all the rest: it runs in the background, this often."""
_OPENING = Wanted(1, 1, None, None)
_OPENING_LENGTH = timedelta(hours=1)
_OPENINGS_WITHIN = timedelta(days=7)
_log = structlog.get_logger(__name__)


class FleetReader:
    """The fleet as it is now: read only after a change, and once for all concurrent requests.

    `on_change` is called after a change that no event records.
    """

    def __init__(self, uow: UnitOfWorkFactory, clock: Clock, on_change: Callable[[], None]) -> None:
        self._uow = uow
        self._clock = clock
        self._on_change = on_change
        self._reading = SharedReading(self._read)
        self._searching: asyncio.Task[None] | None = None
        self._fleet: FleetPicture | None = None
        self._standing: tuple[object, ...] = ()
        self._openings: Mapping[str, datetime | None] = {}
        self._openings_at: datetime | None = None

    async def fleet(self) -> FleetPicture:
        """The fleet with all that was committed before this call. Raises DatabaseUnavailableError."""
        return await self._reading()

    async def close(self) -> None:
        """Cancel running reads."""
        await self._reading.close()
        if self._searching is not None:
            self._searching.cancel()
            await asyncio.gather(self._searching, return_exceptions=True)

    async def _read(self) -> FleetPicture:
        async with self._uow() as uow:
            fleet = await self._read_within(uow)
        if fleet.full and self._searching is None and self._openings_are_old(fleet):
            self._searching = asyncio.create_task(self._search())
        return fleet

    async def _read_within(self, uow: UnitOfWork) -> FleetPicture:
        standing, now = await uow.events.standing(), self._clock.now()
        before = self._fleet
        if before is None or standing != self._standing or now - before.read_at >= OLDEST:
            known = {} if before is None else {node.name: node.now for node in before.nodes}
            before = fleet_of(before, await uow.inventory.nodes_now(SOON, known), now)
        self._fleet, self._standing = with_openings(before, self._openings), standing
        return self._fleet

    def _openings_are_old(self, fleet: FleetPicture) -> bool:
        age = None if self._openings_at is None else self._clock.now() - self._openings_at
        return age is None or age >= OPENINGS_EVERY or not fleet.full <= self._openings.keys()

    async def _search(self) -> None:
        try:
            async with self._uow() as uow:
                now = self._clock.now()
                slots = await find_slots(uow, _OPENING, _OPENING_LENGTH, None, now + _OPENINGS_WITHIN)
        except DatabaseUnavailableError as error:
            _log.warning("openings_not_read", error=str(error))
            return
        finally:
            self._searching = None
        if self._fleet is not None:
            found = openings_of(self._fleet, slots)
            differs = found != self._openings
            self._openings, self._openings_at = found, now
            if differs:
                self._on_change()

"""Many who look cost one look; nobody sees what was before they asked."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from api_service.web.fleet.fleet_reading import OLDEST, OPENINGS_EVERY, FleetReader
from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.domain.bookings.card_choice import LedgerGpu
from reservation_core.ports.nodes.cards_now import NodeNow
from reservation_core.ports.transactions import DatabaseUnavailableError
from tests.unit.api_service.web.fleet.fleets import HOUR, NOW, card, hold, node
from tests.virtual_time import run_virtually


class Database:
    """Nodes, and how often they are read; each read takes a tenth of a second."""

    def __init__(self) -> None:
        self.nodes: list[NodeNow] = [node("a", card())]
        self.recorded = 0
        self.moment = NOW
        self.away = False
        self.reads = 0
        self.searches = 0
        self.told = 0

    def now(self) -> datetime:
        return self.moment

    def commit(self, *nodes: NodeNow) -> None:
        """Something changes, and is recorded."""
        self.nodes = list(nodes)
        self.recorded += 1

    @asynccontextmanager
    async def uow(self) -> AsyncIterator[Any]:
        """A unit of work."""
        if self.away:
            raise DatabaseUnavailableError("away")
        yield SimpleNamespace(events=self, inventory=self, bookings=self, now=self._now)

    async def standing(self) -> tuple[object, ...]:
        return (self.recorded,)

    async def nodes_now(self, _soon: timedelta, _before: Mapping[str, NodeNow]) -> list[NodeNow]:
        self.reads += 1
        found = self.nodes
        await asyncio.sleep(0.1)
        return found

    async def cards(self, _start: datetime, _end: datetime) -> list[LedgerGpu]:
        self.searches += 1
        await asyncio.sleep(0.5)
        busy = (0, int((NOW + 2 * HOUR).timestamp() * 1_000_000))
        return [LedgerGpu(1, "a", 0, "h100", True, True, False, [busy])]

    async def _now(self) -> datetime:
        return self.moment

    def tell(self) -> None:
        self.told += 1


def _virtually(story: Callable[[FleetReader, Database], Awaitable[None]]) -> None:
    async def told() -> None:
        database = Database()
        reader = FleetReader(cast("UnitOfWorkFactory", database.uow), database, database.tell)
        try:
            await story(reader, database)
        finally:
            await reader.close()

    run_virtually(told())


def test_all_who_ask_meanwhile_share_one_look() -> None:
    async def story(reader: FleetReader, database: Database) -> None:
        await asyncio.gather(*(reader.fleet() for _ in range(100)))
        assert database.reads == 1

    _virtually(story)


def test_whoever_asks_after_a_commit_sees_it_though_a_look_is_under_way() -> None:
    async def story(reader: FleetReader, database: Database) -> None:
        early = asyncio.create_task(reader.fleet())
        while not database.reads:
            await asyncio.sleep(0)
        database.commit(node("a", card(holder=hold())))
        late = await asyncio.gather(*(reader.fleet() for _ in range(10)))
        assert (await early).nodes[0].cards[0].holder is None
        assert all(fleet.nodes[0].cards[0].holder is not None for fleet in late)
        assert database.reads == 2

    _virtually(story)


def test_nothing_is_read_again_while_nothing_is_recorded() -> None:
    async def story(reader: FleetReader, database: Database) -> None:
        first = await reader.fleet()
        assert await reader.fleet() is first
        database.moment += OLDEST - timedelta(seconds=1)
        assert await reader.fleet() is first
        assert database.reads == 1
        database.moment += timedelta(seconds=2)
        assert (await reader.fleet()).version == first.version
        assert database.reads == 2

    _virtually(story)


def test_nobody_waits_for_the_next_opening_and_pages_hear_of_it() -> None:
    async def story(reader: FleetReader, database: Database) -> None:
        loop = asyncio.get_running_loop()
        database.commit(node("a", card(holder=hold())))
        began = loop.time()
        first = await reader.fleet()
        assert loop.time() - began < 0.2
        assert (database.told, first.openings) == (0, {})
        while not database.told:
            await asyncio.sleep(0.1)
        second = await reader.fleet()
        assert second.openings == {"h100": NOW + 2 * HOUR}
        assert (database.reads, second.version) == (1, first.version + 1)
        await reader.fleet()
        assert (database.searches, database.told) == (1, 1)
        database.moment += OPENINGS_EVERY
        await reader.fleet()
        await asyncio.sleep(1)
        assert (database.searches, database.told) == (2, 1)

    _virtually(story)


def test_free_time_is_not_searched_where_every_type_has_a_free_card() -> None:
    async def story(reader: FleetReader, database: Database) -> None:
        await reader.fleet()
        await asyncio.sleep(1)
        assert database.searches == 0

    _virtually(story)


def test_who_goes_away_takes_nothing_from_the_others() -> None:
    async def story(reader: FleetReader, database: Database) -> None:
        leaving = asyncio.create_task(reader.fleet())
        staying = asyncio.create_task(reader.fleet())
        await asyncio.sleep(0.05)
        leaving.cancel()
        assert (await staying).version == 1
        assert database.reads == 1

    _virtually(story)


def test_a_database_that_is_away_is_said_and_asked_again() -> None:
    async def story(reader: FleetReader, database: Database) -> None:
        database.away = True
        with pytest.raises(DatabaseUnavailableError):
            await reader.fleet()
        database.away = False
        assert (await reader.fleet()).version == 1

    _virtually(story)

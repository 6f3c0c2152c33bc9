"""Connections that processes hold: counted exactly, and not lost because the database was away."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import cast

import pytest

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.domain.errors import TooManyConnectionsError
from reservation_core.domain.sessions.ways_in import Way
from reservation_core.runtime.sessions.connections import Connection, Connections
from reservation_core.usecases.sessions.enter import Visitor
from tests.database.sql import sql
from tests.integration.reservation_core.usecases.world import World

_OUTAGE = timedelta(minutes=5)
_MOST = 5
_WAITS = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@pytest.fixture
async def left() -> AsyncIterator[AsyncExitStack]:
    """Closed at the end of a test."""
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def job_id(world: World) -> str:
    """A job that runs. The token of the world's user is stored."""
    async with world.uow() as uow:
        await sql(
            uow,
            "INSERT INTO tokens (id, user_id, digest, created_at) VALUES (:id, :user, sha256('x'), now())",
            id="tok-x", user=world.who.user_id,
        )  # fmt: skip
    return await world.ran()


def _process(world: World) -> Connections:
    return Connections(world.uow, world.clock, _MOST)


def _visitor(world: World) -> Visitor:
    return Visitor(world.who.user_id, world.who.user, world.who.token_id, "192.0.2.1")


async def _listed(world: World, job_id: str) -> list[tuple[str, str | None]]:
    async with world.uow() as uow:
        return [(one.way.value, one.address) for one in await uow.connections.of_job(job_id, 10, world.clock.now())]


async def test_streams_outlive_an_outage_of_the_database(world: World, job_id: str, left: AsyncExitStack) -> None:
    first, second = _process(world), _process(world)
    opened: list[Connection] = []
    for process, way in ((first, Way.EXEC), (second, Way.SSH), (second, Way.APP)):
        opened.append(await left.enter_async_context(process.enter(_visitor(world), job_id, 0, way)))
    before = [one.held() for one in opened]
    world.clock.go_on(_OUTAGE)
    await first.refresh()
    assert await _listed(world, job_id) == [("exec", "192.0.2.1")]
    await second.refresh()
    assert not any(one.over.is_set() for one in opened)
    assert sorted(await _listed(world, job_id)) == [("app", "192.0.2.1"), ("exec", "192.0.2.1"), ("ssh", "192.0.2.1")]
    async with world.uow() as uow:
        rows = list(await sql(uow, "SELECT id, token_id, opened_at FROM connections ORDER BY id"))
    assert [tuple(row) for row in rows] == [(one.id, one.noted.credential, one.opened_at) for one in before]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE tokens SET revoked_at = now()",
        "UPDATE users SET disabled_at = now()",
        "UPDATE reservations SET status = 'ending', outcome = 'cancelled'",
        "UPDATE reservations SET attempt = 2",
        "DELETE FROM job_shares",
    ],
)
async def test_a_right_that_was_withdrawn_in_an_outage_ends_its_streams(
    world: World, job_id: str, left: AsyncExitStack, statement: str
) -> None:
    async with world.uow() as uow:
        new_user = "INSERT INTO users (name, role, created_at) VALUES ('other', 'user', now()) RETURNING id"
        other = (await sql(uow, new_user)).scalar_one()
        await sql(
            uow,
            "INSERT INTO job_shares (reservation_id, user_id, created_at) VALUES (:job, :user, now())",
            job=job_id, user=other,
        )  # fmt: skip
    visitor = Visitor(other, "other", world.who.token_id, None)
    first, second = _process(world), _process(world)
    opened = await left.enter_async_context(second.enter(visitor, job_id, 0, Way.EXEC))
    world.clock.go_on(_OUTAGE)
    await first.refresh()
    async with world.uow() as uow:
        await sql(uow, statement)
    await second.refresh()
    assert opened.over.is_set()
    assert await _listed(world, job_id) == []


async def test_a_stream_that_is_closed_during_a_refresh_is_not_stored_again(world: World, job_id: str) -> None:
    refreshes, goes_on = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def slow_uow(**options: bool) -> AsyncIterator[UnitOfWork]:
        if asyncio.current_task() is refreshing:
            refreshes.set()
            await goes_on.wait()
        async with world.uow(**options) as uow:
            yield uow

    process = Connections(cast("UnitOfWorkFactory", slow_uow), world.clock, _MOST)
    refreshing: asyncio.Task[None] | None = None
    async with process.enter(_visitor(world), job_id, 0, Way.EXEC):
        refreshing = asyncio.create_task(process.refresh())
        await refreshes.wait()
    goes_on.set()
    await refreshing
    assert await _listed(world, job_id) == []


async def test_a_user_has_no_more_connections_than_allowed_however_they_come(world: World, job_id: str) -> None:
    processes = [_process(world), _process(world)]
    inside, most_inside = 0, 0
    full = asyncio.Event()

    async def enter(number: int) -> bool:
        nonlocal inside, most_inside
        try:
            async with processes[number % 2].enter(_visitor(world), job_id, 0, Way.EXEC):
                inside += 1
                most_inside = max(most_inside, inside)
                await full.wait()
        except TooManyConnectionsError:
            return False
        return True

    tasks = [asyncio.create_task(enter(number)) for number in range(30)]
    while sum(task.done() for task in tasks) + inside < len(tasks):
        await asyncio.sleep(0.01)
    full.set()
    assert sum(await asyncio.gather(*tasks)) == _MOST
    assert most_inside == _MOST
    async with processes[0].enter(_visitor(world), job_id, 0, Way.EXEC):
        pass


async def test_a_connection_waits_until_another_of_its_user_is_counted(world: World, job_id: str) -> None:
    async def enter() -> None:
        async with _process(world).enter(_visitor(world), job_id, 0, Way.EXEC):
            pass

    async with world.uow() as uow:
        await uow.connections.lock_of_user(world.who.user_id)
        entering = asyncio.create_task(enter())
        while not ((await world.sql(_WAITS)).all() or entering.done()):
            await asyncio.sleep(0.01)
        assert not entering.done()
    await entering


async def test_connections_of_a_process_that_was_killed_count_no_more(world: World, job_id: str) -> None:
    killed, process = _process(world), _process(world)
    entered = [killed.enter(_visitor(world), job_id, 0, Way.EXEC) for _ in range(_MOST)]
    for one in entered:
        await one.__aenter__()
    with pytest.raises(TooManyConnectionsError):
        await process.enter(_visitor(world), job_id, 0, Way.EXEC).__aenter__()
    world.clock.go_on(timedelta(seconds=61))
    async with process.enter(_visitor(world), job_id, 0, Way.EXEC):
        await process.refresh()
        async with world.uow() as uow:
            assert (await sql(uow, "SELECT count(*) FROM connections")).scalar_one() == 1
    for one in entered:
        await one.__aexit__(None, None, None)

"""The database's clock decides, whatever the machine's own says."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from reservation_core.adapters.postgres.connection.engine import open_engine
from reservation_core.adapters.postgres.connection.shared_clock import SharedClock
from reservation_core.adapters.postgres.planning.planning import Planning
from reservation_core.domain.network.clock_steps import PATIENCE
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.runtime.settings.components import ExpirySettings
from reservation_core.runtime.wiring import open_runtime
from tests.clocks import START, SettableClock
from tests.database.database_clock import DatabaseClock
from tests.waiting import eventually

SECOND = timedelta(seconds=1)
FIVE_MINUTES = timedelta(minutes=5)
HALF = timedelta(seconds=0.5)


class Counted:
    """Seconds that a test counts; a question to the database takes one."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.step = 0.0

    def __call__(self) -> float:
        self.seconds += self.step
        return self.seconds


@pytest.mark.parametrize("off", [timedelta(minutes=5), timedelta(minutes=-5), timedelta(days=800)])
async def test_a_machine_whose_clock_is_wrong_goes_by_the_database(database_url: str, off: timedelta) -> None:
    await DatabaseClock.install(database_url, START)
    engine = open_engine(database_url, pool=1, application="test")
    counted = Counted()
    machine = SettableClock(START + off)
    clock = SharedClock(engine, machine, counted)
    assert clock.now() == START + off
    try:
        await clock.ask()
        assert clock.now() == START
        counted.seconds += 7
        machine.at += timedelta(hours=1)  # somebody sets it: nothing happens
        assert clock.now() == START + timedelta(seconds=7)
    finally:
        await engine.dispose()


async def test_the_way_there_and_back_is_shared_evenly(database_url: str) -> None:
    await DatabaseClock.install(database_url, START)
    engine = open_engine(database_url, pool=1, application="test")
    counted = Counted()
    clock = SharedClock(engine, SettableClock(), counted)
    try:
        counted.step = 2.0
        await clock.ask()
        counted.step = 0.0
        # The best answer took two seconds; asked in the middle of them, it is one second old when it comes.
        assert timedelta(seconds=1) <= clock.now() - START <= timedelta(seconds=1 + 2 * 6)
    finally:
        await engine.dispose()


async def test_without_a_database_time_goes_on(tmp_path: Path) -> None:
    engine = open_engine("postgresql+asyncpg://nobody@127.0.0.1:9/none", pool=1, application="test")
    counted = Counted()
    clock = SharedClock(engine, SettableClock(), counted)
    with pytest.raises(DatabaseUnavailableError):
        await clock.ask()
    counted.seconds += 60
    assert clock.now() == START + timedelta(minutes=1)
    await engine.dispose()


async def test_every_component_reads_it(database_url: str, tmp_path: Path) -> None:
    await DatabaseClock.install(database_url, START)
    settings = ExpirySettings(home=tmp_path / "home", local_gpus="h100:1")
    async with open_runtime(settings, database_url) as runtime:
        assert abs(runtime.clock.now() - START) < timedelta(minutes=5)
        assert abs(datetime.now(UTC) - START) > timedelta(days=100)


class Leader:
    """A clock that leads on a database whose clock a test sets."""

    def __init__(self, engine: AsyncEngine, url: str, time: DatabaseClock) -> None:
        self.engine, self.url, self.time = engine, url, time
        self.counted = Counted()
        self.clock = SharedClock(engine, SettableClock(), self.counted)

    async def go_on(self, by: timedelta) -> None:
        """Time passes for all."""
        self.counted.seconds += by.total_seconds()
        await self.time.go_on(by)

    async def ledger_now(self) -> datetime:
        """What time it is for the ledger."""
        async with self.engine.connect() as connection:
            found: datetime = (await connection.execute(text("SELECT ledger_now()"))).scalar_one()
        return found

    async def acquire(self, ttl: timedelta = timedelta(seconds=3)) -> int:
        """Take the lease."""
        async with self.engine.begin() as connection:
            epoch = await Planning(connection, self.clock).acquire("leader", ttl)
        assert epoch is not None
        return epoch


@pytest.fixture
async def leader(database_url: str) -> AsyncIterator[Leader]:
    """A clock in agreement with the database."""
    time = await DatabaseClock.install(database_url, START)
    engine = open_engine(database_url, pool=4, application="test")
    leader = Leader(engine, database_url, time)
    await leader.clock.begin()
    yield leader
    await engine.dispose()


@pytest.mark.parametrize("by", [FIVE_MINUTES, -FIVE_MINUTES])
async def test_a_step_of_the_databases_clock_is_none_of_the_ledgers(leader: Leader, by: timedelta) -> None:
    """It is made up for by a thousandth of the time that goes by: after 500 s by half a second."""
    epoch = await leader.acquire()
    await leader.time.go_on(by)
    assert await leader.ledger_now() == START + by
    async with leader.clock.leading(epoch):
        pass
    assert leader.clock.now() == START
    assert await leader.ledger_now() == START
    await leader.go_on(timedelta(seconds=500))
    assert await leader.ledger_now() == START + timedelta(seconds=500) + (HALF if by > timedelta(0) else -HALF)
    late = SharedClock(leader.engine, SettableClock(START - by))
    await late.adopt()
    assert abs(late.now() - await leader.ledger_now()) < FIVE_MINUTES / 2


@pytest.mark.parametrize("by", [FIVE_MINUTES, -FIVE_MINUTES])
async def test_beside_a_leader_a_step_is_counted_over_and_adopted_in_the_end(leader: Leader, by: timedelta) -> None:
    await leader.acquire(2 * PATIENCE)
    await leader.time.go_on(by)
    await leader.clock.ask()
    assert leader.clock.now() == START
    assert leader.clock.judged(START + by) == START
    assert await leader.ledger_now() == START + by
    await leader.go_on(PATIENCE)
    await leader.clock.ask()
    assert leader.clock.now() == START + PATIENCE + by


@pytest.mark.parametrize("by", [FIVE_MINUTES, -FIVE_MINUTES])
@pytest.mark.parametrize("before", ["killed", "stopped", "never there"])
async def test_while_nobody_leads_a_step_is_made_up_for_by_who_lives(
    leader: Leader, before: str, by: timedelta
) -> None:
    """The next leader begins with the right time. Nothing is corrected before the former leader's lease is out."""
    if before != "never there":
        epoch = await leader.acquire()
        if before == "stopped":
            async with leader.engine.begin() as connection:
                await Planning(connection, leader.clock).release(epoch)
        await leader.clock.ask()
    await leader.time.go_on(by)
    await leader.clock.ask()
    passed = timedelta(0)
    if before == "killed":
        assert await leader.ledger_now() == START + by
        passed = SECOND * 3
        await leader.go_on(passed)
        await leader.clock.ask()
    assert leader.clock.now() == await leader.ledger_now() == START + passed
    late = SharedClock(leader.engine, SettableClock())
    await late.adopt()
    assert abs(late.now() - START - passed) < FIVE_MINUTES / 2


async def test_a_process_whose_machine_stood_still_makes_up_for_nothing(leader: Leader) -> None:
    """It is behind: by its count the lease of the leader, who has renewed it meanwhile, has not run out."""
    slept = Leader(leader.engine, leader.url, leader.time)
    await slept.clock.begin()
    await leader.go_on(FIVE_MINUTES)
    await leader.acquire()
    await slept.clock.ask()
    assert await leader.ledger_now() == START + FIVE_MINUTES
    slept.counted.seconds += PATIENCE.total_seconds()
    await slept.clock.ask()
    assert slept.clock.now() == START + FIVE_MINUTES


async def test_nor_does_it_when_the_leader_dies_after_that(leader: Leader) -> None:
    """It counts on, and by its count the lease of the dead leader runs out in the end."""
    slept = Leader(leader.engine, leader.url, leader.time)
    await slept.clock.begin()
    await leader.go_on(SECOND * 10)
    await leader.acquire()
    await leader.go_on(FIVE_MINUTES - SECOND * 10)
    for _ in range(int(PATIENCE.total_seconds()) + 1):
        await slept.clock.ask()
        slept.counted.seconds += 1
        await leader.go_on(SECOND)
    assert await leader.ledger_now() == leader.clock.now()
    await slept.clock.ask()
    assert slept.clock.now() == leader.clock.now()


async def test_a_process_that_begins_waits_for_who_lives(leader: Leader) -> None:
    """All processors are dead, and the clock steps: their lease has to run out before anybody may correct it."""
    await leader.acquire()
    await leader.clock.ask()
    await leader.time.go_on(FIVE_MINUTES)
    counted = Counted()
    late = SharedClock(leader.engine, SettableClock(), counted)
    begins = asyncio.create_task(late.begin())
    await eventually(lambda: _idle(leader.engine))
    leader.counted.seconds += 4
    counted.seconds += 4
    await leader.clock.ask()
    counted.seconds += 4
    await begins
    assert abs(late.now() - START) < FIVE_MINUTES / 2


async def test_a_former_leader_makes_up_for_nothing(leader: Leader) -> None:
    epoch = await leader.acquire()
    await leader.acquire()
    await leader.time.go_on(FIVE_MINUTES)
    async with leader.clock.leading(epoch):
        pass
    assert await leader.ledger_now() == START + FIVE_MINUTES


async def test_a_step_that_was_recorded_since_it_was_seen_is_not_made_up_for_again(leader: Leader) -> None:
    """The lease may change hands while it is being recorded."""
    epoch = await leader.acquire()
    async with leader.clock.leading(epoch):
        await leader.time.go_on(-FIVE_MINUTES)
        async with leader.engine.begin() as connection:
            await connection.execute(text("SELECT FROM planner_lease FOR UPDATE"))
            asking = asyncio.create_task(leader.clock.ask())
            await eventually(lambda: _waits(leader.engine))
            record = (await connection.execute(text("SELECT CAST(c AS text) FROM ledger_clock c"))).scalar_one()
            other = SharedClock(leader.engine, SettableClock())
            await other.hold_unseen(connection, epoch, -FIVE_MINUTES, record)
        await asking
        assert await leader.ledger_now() == START
        await leader.clock.ask()
        assert leader.clock.now() == await leader.ledger_now() == START


async def _waits(engine: AsyncEngine) -> bool:
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    async with engine.connect() as connection:
        found: int = (await connection.execute(text(waiting))).scalar_one()
    return found == 1


async def _idle(engine: AsyncEngine) -> bool:
    asked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%AS confirmed%'"
    async with engine.connect() as connection:
        found: int = (await connection.execute(text(asked + " AND state = 'idle'"))).scalar_one()
    return found == 1


async def test_a_standby_leaves_it_to_the_leader_whether_a_step_is_too_long(leader: Leader) -> None:
    """One that takes the clock back past the right time is not, however far it goes: the two are not far apart then."""
    epoch = await leader.acquire()
    standby = Leader(leader.engine, leader.url, leader.time)
    await standby.clock.begin()
    async with leader.clock.leading(epoch):
        await leader.time.go_on(FIVE_MINUTES)
        await leader.clock.ask()
        await leader.time.go_on(-2 * FIVE_MINUTES - SECOND)
        await standby.clock.ask()
        assert standby.clock.now() == START
        await leader.clock.ask()
        await standby.clock.ask()
        assert standby.clock.now() == leader.clock.now() == await leader.ledger_now() == START


async def test_a_new_leader_goes_by_what_the_one_before_has_recorded(leader: Leader) -> None:
    epoch = await leader.acquire()
    await leader.time.go_on(-FIVE_MINUTES)
    misled = Leader(leader.engine, leader.url, leader.time)
    await misled.clock.adopt()
    assert misled.clock.now() == START - FIVE_MINUTES
    async with leader.clock.leading(epoch):
        pass
    async with misled.clock.leading(await misled.acquire()):
        assert misled.clock.now() == START
        await leader.time.go_on(FIVE_MINUTES)
        await misled.clock.ask()
        assert misled.clock.now() == await leader.ledger_now() == START


async def test_a_step_that_would_put_bookings_off_for_too_long_is_adopted(leader: Leader) -> None:
    epoch = await leader.acquire()
    async with leader.clock.leading(epoch):
        await leader.time.go_on(2 * FIVE_MINUTES)
        await leader.clock.ask()
        assert leader.clock.now() == START
        await leader.time.go_on(FIVE_MINUTES)
        await leader.clock.ask()
        assert abs(leader.clock.now() - START - FIVE_MINUTES) < SECOND


async def test_messages_are_not_hidden_by_a_step_back(leader: Leader) -> None:
    epoch = await leader.acquire()
    sent = "INSERT INTO pgmq.q_pod_operations (vt, message) SELECT clock_timestamp(), '{}'"
    async with leader.engine.begin() as connection:
        await connection.execute(text(sent))
    await leader.time.go_on(-FIVE_MINUTES)
    visible = text("SELECT count(*) FROM pgmq.read('pod_operations', 1, 10)")
    async with leader.engine.begin() as connection:
        assert (await connection.execute(visible)).scalar_one() == 0
    async with leader.clock.leading(epoch):
        pass
    async with leader.engine.begin() as connection:
        assert (await connection.execute(visible)).scalar_one() == 1


async def test_the_lease_runs_out_by_what_is_counted(leader: Leader) -> None:
    """A step back keeps nobody from leading, a step forward takes the lease from nobody."""
    await leader.acquire()
    for by in (FIVE_MINUTES, -2 * FIVE_MINUTES):
        await leader.time.go_on(by)
        async with leader.engine.begin() as connection:
            assert await Planning(connection, leader.clock).acquire("other", SECOND * 3) is None
    leader.counted.seconds += 4
    async with leader.engine.begin() as connection:
        assert await Planning(connection, leader.clock).acquire("other", SECOND * 3) is not None


@pytest.mark.parametrize("took", [0.0, 2.0], ids=["quick", "slow"])
async def test_a_step_back_that_nobody_saw_does_not_put_the_ledgers_time_back(leader: Leader, took: float) -> None:
    """The last renewal of the lease is not in the future. A slow database keeps nobody from going by that."""
    await leader.acquire()
    await leader.time.go_on(-FIVE_MINUTES)
    counted = Counted()
    later = SharedClock(leader.engine, SettableClock(), counted)
    await later.adopt()
    async with leader.engine.begin() as connection:
        epoch = await Planning(connection, later).acquire("other", SECOND * 3)
    assert epoch is not None
    counted.step = took
    async with later.leading(epoch):
        counted.step = 0.0
        assert abs(later.now() - START) <= 20 * SECOND * took


@pytest.mark.parametrize("by", [FIVE_MINUTES, -FIVE_MINUTES])
async def test_a_process_that_begins_after_a_step_waits_for_the_leader(leader: Leader, by: timedelta) -> None:
    epoch = await leader.acquire()
    await leader.time.go_on(by)
    late = SharedClock(leader.engine, SettableClock())
    begins = asyncio.create_task(late.begin())
    async with leader.clock.leading(epoch):
        pass
    await begins
    assert abs(late.now() - START) < FIVE_MINUTES / 2

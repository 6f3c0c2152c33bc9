"""The database's clock decides, whatever the machine's own says."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from reservation_core.adapters.postgres.engine import open_engine
from reservation_core.adapters.postgres.shared_clock import SharedClock
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.runtime.settings import ExpirySettings
from reservation_core.runtime.wiring import open_runtime
from tests.clocks import START, SettableClock
from tests.database_clock import DatabaseClock


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

"""A database that is there and does not do what it is asked: processors go on, and do their work afterwards."""

import asyncio

import pytest

from reservation_core.domain.statuses import JobStatus
from tests.faults.systems.system import System
from tests.waiting import eventually

TRUE = {"command": ["true"]}
_END_SESSIONS = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE 'reservation_processor%'
"""
_CANCEL = """
SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE 'reservation_processor%' AND state = 'active'
"""
_FAIL_AT = """
CREATE FUNCTION refuse_for_now() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('application_name') LIKE 'reservation_processor%' THEN
        RAISE EXCEPTION USING ERRCODE = '{sqlstate}', MESSAGE = 'injected';
    END IF;
    RETURN NULL;
END $$
"""


async def is_read_only(system: System, *, read_only: bool) -> None:
    """As managed servers are while their disk is full. New sessions see it: those of processors begin anew."""
    [[name]] = await system.rows("SELECT current_database()")
    how = "SET default_transaction_read_only = on" if read_only else "RESET default_transaction_read_only"
    async with system.engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        await connection.exec_driver_sql(f'ALTER DATABASE "{name}" {how}')
    await system.rows(_END_SESSIONS)


async def runs_a_job(system: System) -> None:
    """A job goes its whole way."""
    [job] = await system.submit(system.new(TRUE))
    await system.reaches(job, JobStatus.SUCCEEDED)


async def test_a_processor_outlives_a_read_only_database(system: System) -> None:
    with system.processor() as process:
        await runs_a_job(system)
        await is_read_only(system, read_only=True)
        await eventually(
            lambda: process.log.read_text().count("SQLSTATE 25006") > 5 or process.returncode() is not None
        )
        assert process.returncode() is None
        await is_read_only(system, read_only=False)
        await runs_a_job(system)
        assert process.returncode() is None


async def test_a_processor_outlives_a_storm_of_cancelled_statements(system: System) -> None:
    with system.processor() as process:
        await runs_a_job(system)
        stop = asyncio.Event()

        async def storm() -> None:
            while not stop.is_set():
                await system.rows(_CANCEL)

        storming = asyncio.create_task(storm())
        try:
            await eventually(lambda: process.said("SQLSTATE 57014") or process.returncode() is not None)
            jobs = await system.submit(*(system.new(TRUE) for _ in range(5)))
            assert process.returncode() is None
        finally:
            stop.set()
            await storming
        for job in jobs:
            await system.reaches(job, JobStatus.SUCCEEDED)
        assert process.returncode() is None


@pytest.mark.parametrize("sqlstate", ["53100", "22000", "58030", "XX000", "55P03"])
@pytest.mark.parametrize("table", ["allocations", "events"])
async def test_a_processor_outlives_a_table_that_can_not_be_written(system: System, sqlstate: str, table: str) -> None:
    """The statement that starts jobs fails at one of its tables, as long as somebody wants to start."""
    await system.rows(_FAIL_AT.format(sqlstate=sqlstate))
    with system.processor() as process:
        await runs_a_job(system)
        await system.rows(f"CREATE TRIGGER refuse BEFORE INSERT ON {table} EXECUTE FUNCTION refuse_for_now()")
        [job] = await system.submit(system.new(TRUE))
        await eventually(lambda: process.said(f"SQLSTATE {sqlstate}") or process.returncode() is not None)
        assert process.returncode() is None, process.log.read_text()
        assert await system.status(job) is JobStatus.QUEUED
        await system.rows(f"DROP TRIGGER refuse ON {table}")
        await system.reaches(job, JobStatus.SUCCEEDED)
        assert process.returncode() is None

"""Harms to a system in a campaign: one at a time, by chance, each for some seconds."""

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import asyncpg
import psutil

from reservation_core.adapters.postgres.embedded.server import EmbeddedPostgres
from tests.faults.campaign.processes import Processes
from tests.faults.systems.system import System

SQLSTATES = (
    "08006", "22000", "25006", "40001", "40P01", "53100", "53200", "53300", "55P03", "57014", "57P01", "57P03", "58030",
    "XX000",
)  # fmt: skip
TABLES = ("allocations", "events", "reservations", "wait_estimates", "planner_lease", "nodes")
STEPS_S = (-300, -60, 60, 300)

# Before PostgreSQL's own in the search path: the clock of this one database, which can be stepped.
_PREPARE = """
CREATE SCHEMA chaos;
CREATE TABLE chaos.clock (by interval NOT NULL);
INSERT INTO chaos.clock VALUES ('0');
CREATE FUNCTION chaos.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
    AS 'SELECT pg_catalog.clock_timestamp() + by FROM chaos.clock';
CREATE FUNCTION chaos.statement_timestamp() RETURNS timestamptz LANGUAGE sql STABLE
    AS 'SELECT pg_catalog.statement_timestamp() + by FROM chaos.clock';
CREATE FUNCTION chaos.now() RETURNS timestamptz LANGUAGE sql STABLE
    AS 'SELECT pg_catalog.now() + by FROM chaos.clock';
CREATE TABLE chaos.failing (code text);
CREATE FUNCTION chaos.fail() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE wanted text;
BEGIN
    SELECT code INTO wanted FROM chaos.failing;
    -- What speaks of a statement and its values does not pass: the API answers 500, as it should.
    IF wanted LIKE '22%' AND current_setting('application_name') LIKE 'gpu-dev-api%' THEN RETURN NULL; END IF;
    IF wanted IS NOT NULL AND random() < 0.5 THEN
        RAISE EXCEPTION 'chaos' USING ERRCODE = wanted;
    END IF;
    RETURN NULL;
END $$;
"""


class Harms:
    """Does one after the other, or `kills` alone; `done` counts them."""

    def __init__(
        self, system: System, server: EmbeddedPostgres, processes: Processes, seed: int, *, kills: bool = False
    ) -> None:
        self.done: Counter[str] = Counter()
        self._system = system
        self._server = server
        self._processes = processes
        self._dice = random.Random(seed + 1)
        self._url = server.url.replace("postgresql+asyncpg://", "postgresql://")
        self._stepped = 0
        self._all: tuple[tuple[str, Callable[[], Awaitable[None]]], ...] = (
            ("a process killed", self._kill_one),
            ("all processors killed", self._kill_processors),
            ("database killed", self._kill_database),
        )
        self._all += (
            ()
            if kills
            else (
                ("a process stopped", self._stop_one),
                ("database read-only", self._read_only),
                ("statements cancelled", self._cancel),
                ("sessions ended", self._end_sessions),
                ("statements fail", self._fail),
                ("clock stepped", self._step),
            )
        )

    @property
    def kills(self) -> int:
        """How often something was killed."""
        return sum(count for name, count in self.done.items() if name.endswith("killed"))

    async def prepare(self) -> None:
        """Install what the harms of the database need. Connections that are opened later are harmed."""
        async with self._connected() as connection:
            await connection.execute(_PREPARE)
            for table in TABLES:
                await connection.execute(
                    f"CREATE TRIGGER chaos AFTER INSERT OR UPDATE OR DELETE ON {table}"
                    " FOR EACH STATEMENT EXECUTE FUNCTION chaos.fail()"
                )
            name = await connection.fetchval("SELECT current_database()")
            await connection.execute(f'ALTER DATABASE "{name}" SET search_path = chaos, public, pg_catalog')

    async def next(self) -> None:
        """One harm, and some seconds to recover."""
        name, harm = self._dice.choice(self._all)
        self.done[name] += 1
        await harm()
        await asyncio.sleep(self._dice.choice((0.5, 5, 15)))

    async def over(self) -> None:
        """Nothing is harmed any more."""
        async with self._connected() as connection:
            await connection.execute("DELETE FROM chaos.failing")

    async def _kill_one(self) -> None:
        self._processes.send(self._dice.choice(self._processes.names), signal.SIGKILL)

    async def _kill_processors(self) -> None:
        for name in self._processes.names:
            if name.startswith("processor"):
                self._processes.send(name, signal.SIGKILL)

    async def _stop_one(self) -> None:
        name = self._dice.choice(self._processes.names)
        self._processes.send(name, signal.SIGSTOP)
        await asyncio.sleep(self._dice.choice((1, 5, 10)))
        self._processes.send(name, signal.SIGCONT)

    async def _kill_database(self) -> None:
        assert self._server.pid is not None
        postmaster = psutil.Process(self._server.pid)
        for process in [postmaster, *postmaster.children(recursive=True)]:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        await asyncio.sleep(self._dice.choice((0, 2, 10)))
        await asyncio.to_thread(self._server.stop)
        await asyncio.to_thread(self._server.start)

    async def _read_only(self) -> None:
        async with self._connected() as connection:
            await connection.execute("ALTER SYSTEM SET default_transaction_read_only = on")
            await connection.execute("SELECT pg_reload_conf()")
            await asyncio.sleep(self._dice.choice((2, 10)))
            await connection.execute("SET default_transaction_read_only = off")
            await connection.execute("ALTER SYSTEM RESET default_transaction_read_only")
            await connection.execute("SELECT pg_reload_conf()")

    async def _cancel(self) -> None:
        async with self._connected() as connection:
            for _ in range(100):
                await connection.execute(
                    "SELECT pg_cancel_backend(pid) FROM pg_stat_activity"
                    " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND state = 'active'"
                )
                await asyncio.sleep(0.03)

    async def _end_sessions(self) -> None:
        async with self._connected() as connection:
            await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )

    async def _fail(self) -> None:
        code = self._dice.choice(SQLSTATES)
        self.done[f"statements fail with {code}"] += 1
        async with self._connected() as connection:
            await connection.execute("INSERT INTO chaos.failing VALUES ($1)", code)
            await asyncio.sleep(self._dice.choice((2, 8)))
            await connection.execute("DELETE FROM chaos.failing")

    async def _step(self) -> None:
        """Some minutes forward or back, never more than five from the true time."""
        to = self._dice.choice([by for by in (0, *STEPS_S) if by != self._stepped])
        async with self._connected() as connection:
            await connection.execute("UPDATE chaos.clock SET by = make_interval(secs => $1)", to)
        self._stepped = to

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[asyncpg.Connection]:
        connection = await asyncpg.connect(self._url, timeout=30)
        try:
            yield connection
        finally:
            await connection.close(timeout=10)

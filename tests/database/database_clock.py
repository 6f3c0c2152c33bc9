"""A database whose clock a test sets: what is due comes due without anybody waiting.

Functions of the same names as PostgreSQL's own clock lie before them in the search path of one database.
"""

from datetime import datetime, timedelta

import asyncpg

_INSTALL = """
CREATE SCHEMA test_clock;
CREATE TABLE test_clock.set (at timestamptz NOT NULL);
INSERT INTO test_clock.set VALUES ('{at}');
CREATE FUNCTION test_clock.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
    AS 'SELECT at FROM test_clock.set';
CREATE FUNCTION test_clock.statement_timestamp() RETURNS timestamptz LANGUAGE sql STABLE
    AS 'SELECT at FROM test_clock.set';
"""


# These have a search path of their own.
FUNCTIONS_TOO = """
ALTER FUNCTION make_event_partitions(integer) SET search_path = test_clock, public, pg_catalog;
ALTER FUNCTION drop_event_partition(timestamptz) SET search_path = test_clock, public, pg_catalog;
"""


class DatabaseClock:
    """The clock of one database. Connections that are opened after `install` go by it."""

    def __init__(self, url: str, at: datetime) -> None:
        self._url = url.replace("postgresql+asyncpg://", "postgresql://")
        self.at = at

    @classmethod
    async def install(cls, url: str, at: datetime) -> "DatabaseClock":
        """Set the clock of this database to a time at which it stands still."""
        clock = cls(url, at)
        connection = await asyncpg.connect(clock._url)
        try:
            await connection.execute(_INSTALL.format(at=at.isoformat()) + FUNCTIONS_TOO)
            name = await connection.fetchval("SELECT current_database()")
            await connection.execute(f'ALTER DATABASE "{name}" SET search_path = test_clock, public, pg_catalog')
        finally:
            await connection.close()
        return clock

    def now(self) -> datetime:
        """The time that was set."""
        return self.at

    async def set(self, at: datetime) -> None:
        """It is this time."""
        connection = await asyncpg.connect(self._url)
        try:
            await connection.execute("UPDATE test_clock.set SET at = $1", at)
        finally:
            await connection.close()
        self.at = at

    async def go_on(self, by: timedelta) -> None:
        """Let time pass."""
        await self.set(self.at + by)

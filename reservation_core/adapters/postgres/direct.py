"""Statements whose time counts, handed to the driver itself.

SQLAlchemy's own work on one statement takes about 0.4 ms of a process's only thread, more than the driver and the
server need together. The few statements that every submission and every plan go through can't afford that.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

import asyncpg
from sqlalchemy.dialects import registry
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.queries import statement


async def fetch(connection: AsyncConnection, name: str, parameters: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Run a named statement and return its rows by column name.

    Where each statement commits by itself, past SQLAlchemy; elsewhere through it, in its transaction. Raises what
    `connection.execute` would: IntegrityError for a constraint, or else the driver's own error.
    """
    if _isolation(connection) != "AUTOCOMMIT":
        return [dict(row) for row in (await connection.execute(statement(name), parameters)).mappings()]
    sql, names = _numbered(name)
    pooled = await connection.get_raw_connection()
    driver: asyncpg.Connection = pooled.driver_connection
    try:
        found: list[Mapping[str, Any]] = await driver.fetch(sql, *(parameters[each] for each in names))
    except asyncpg.IntegrityConstraintViolationError as error:
        error.detail = None  # it quotes the row, and with it people's variables
        raise IntegrityError(name, None, error, hide_parameters=True) from error
    except BaseException as error:
        if driver.is_closed() or not isinstance(error, asyncpg.PostgresError):
            # Broken, or left in the middle: SQLAlchemy saw nothing of it and would hand it to the next.
            await connection.invalidate()
        raise
    return found


def _isolation(connection: AsyncConnection) -> object:
    begun = connection.sync_connection
    return None if begun is None else begun.get_execution_options().get("isolation_level")


@cache
def _numbered(name: str) -> tuple[str, tuple[str, ...]]:
    """A statement as the driver wants it ($1, $2 …), and its parameters' names in that order."""
    compiled = statement(name).compile(dialect=registry.load("postgresql.asyncpg")())
    return str(compiled), tuple(compiled.positiontup or ())

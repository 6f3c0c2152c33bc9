"""Statements whose time counts, handed to the driver itself.

SQLAlchemy's own work on one statement takes about 0.4 ms of a process's only thread, more than the driver and the
server need together. The few statements that every submission and every plan go through can't afford that.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

import asyncpg
from sqlalchemy import TextClause, text
from sqlalchemy.dialects import registry
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.connection.queries import statement


async def fetch(connection: AsyncConnection, name: str, parameters: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Run a named statement and return its rows by column name.

    Where each statement commits by itself, past SQLAlchemy; elsewhere through it, in its transaction. Raises what
    `connection.execute` would: IntegrityError for a constraint, or else the driver's own error.
    """
    return await _fetch(connection, (name,), parameters)


async def which_find(
    connection: AsyncConnection, names: tuple[str, ...], parameters: Mapping[str, Any]
) -> Mapping[str, bool]:
    """For each of these named queries whether it would find any row, asked in one statement; raises as `fetch` does."""
    [row] = await _fetch(connection, names, parameters)
    return row


async def _fetch(
    connection: AsyncConnection, names: tuple[str, ...], parameters: Mapping[str, Any]
) -> list[Mapping[str, Any]]:
    if _isolation(connection) != "AUTOCOMMIT":
        return [dict(row) for row in (await connection.execute(_text(names), parameters)).mappings()]
    sql, wanted = _numbered(names)
    pooled = await connection.get_raw_connection()
    driver: asyncpg.Connection = pooled.driver_connection
    try:
        found: list[Mapping[str, Any]] = await driver.fetch(sql, *(parameters[name] for name in wanted))
    except asyncpg.IntegrityConstraintViolationError as error:
        error.detail = None  # it quotes the row, and with it people's variables
        raise IntegrityError(names[0], None, error, hide_parameters=True) from error
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
def _text(names: tuple[str, ...]) -> TextClause:
    """A named statement; of several the question which of them find anything."""
    if len(names) == 1:
        return statement(names[0])
    return text("SELECT " + ",\n".join(f"EXISTS (\n{statement(name).text}\n) AS {name}" for name in names))


@cache
def _numbered(names: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """A statement as the driver wants it ($1, $2 …), and its parameters' names in that order."""
    compiled = _text(names).compile(dialect=registry.load("postgresql.asyncpg")())
    return str(compiled), tuple(compiled.positiontup or ())

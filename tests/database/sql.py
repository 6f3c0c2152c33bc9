"""Statements of a test's own, in a transaction of ours."""

from typing import Any

from sqlalchemy import CursorResult, text
from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork


def connection_of(uow: UnitOfWork) -> AsyncConnection:
    """What it runs on. No other place in the tests reaches into a unit of work."""
    return uow._connection


async def everything(connection: AsyncConnection) -> str:
    """All that all tables hold, queues with it."""
    found = []
    tables = await connection.execute(
        text("SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname IN ('public', 'pgmq')")
    )
    for [table] in tables.all():
        rows = await connection.execute(text(f"SELECT t::text || encode(t::text::bytea, 'escape') FROM {table} t"))
        found += [row[0] for row in rows]
    return "".join(found)


async def sql(uow: UnitOfWork, statement: str, **values: object) -> CursorResult[Any]:
    """What it answers."""
    return await connection_of(uow).execute(text(statement), values)

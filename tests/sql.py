"""Statements of a test's own, in a transaction of ours."""

from typing import Any

from sqlalchemy import CursorResult, text
from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork


def connection_of(uow: UnitOfWork) -> AsyncConnection:
    """What it runs on. No other place in the tests reaches into a unit of work."""
    return uow._connection


async def sql(uow: UnitOfWork, statement: str, **values: object) -> CursorResult[Any]:
    """What it answers."""
    return await connection_of(uow).execute(text(statement), values)

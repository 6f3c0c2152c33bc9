"""The common base of adapters that run named statements in one transaction."""

from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import CursorResult, Row
from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.connection.queries import statement

T = TypeVar("T")


class StatementRunner:
    """Runs named statements on a connection."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def _run(self, statement_name: str, /, **parameters: Any) -> CursorResult[*tuple[Any, ...]]:
        return await self._connection.execute(statement(statement_name), parameters)

    async def _first(self, read: Callable[[Row[Any]], T], statement_name: str, /, **parameters: Any) -> T | None:
        """`read` of the only row; None without one."""
        row = (await self._run(statement_name, **parameters)).one_or_none()
        return None if row is None else read(row)

"""The common base of adapters that run named statements in one transaction."""

from typing import Any

from sqlalchemy import CursorResult
from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.connection.queries import statement


class StatementRunner:
    """Runs named statements on a connection."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def _run(self, statement_name: str, /, **parameters: Any) -> CursorResult[*tuple[Any, ...]]:
        return await self._connection.execute(statement(statement_name), parameters)

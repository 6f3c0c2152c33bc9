"""Rows that nobody may hold up for long: whose client has fallen silent with a lock on them is ended.

The server itself ends a transaction that idles (`idle_in_transaction_session_timeout`), but only between statements.
The driver sends a statement that is new to a connection in two parts, and a process that is stopped after the first
keeps its locks for as long as its connection stands.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import structlog
from sqlalchemy import Row
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.connection.queries import statement
from reservation_core.ports.transactions import DatabaseUnavailableError

_log = structlog.get_logger(__name__)
_LOCK_NOT_AVAILABLE = "55P03"

PATIENCE = timedelta(seconds=15)
"""As long as a transaction may idle: see engine.py."""


async def row_unless_held_up(connection: AsyncConnection, name: str, parameters: Mapping[str, Any]) -> Row[Any] | None:
    """The row, if any, of a named statement that has to lock what it finds, in a transaction for little else.

    Raises DatabaseUnavailableError where others kept it waiting for PATIENCE. Those of them whose clients have been
    silent for as long are ended then, so that the next try succeeds.
    """
    try:
        async with connection.begin_nested():
            milliseconds = str(round(PATIENCE.total_seconds() * 1000))
            await connection.execute(statement("bound_lock_wait"), {"milliseconds": milliseconds})
            return (await connection.execute(statement(name), parameters)).one_or_none()
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) != _LOCK_NOT_AVAILABLE:
            raise
    ended = (await connection.execute(statement("end_silent_sessions"), {"silent_s": PATIENCE.total_seconds()})).all()
    for session in ended:
        _log.warning("ended a session that held locks while its client was silent", **session._asdict())
    raise DatabaseUnavailableError(f"others kept {name} waiting for {PATIENCE.total_seconds():g} s")

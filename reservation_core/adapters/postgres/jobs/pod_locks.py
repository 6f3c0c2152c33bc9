"""Pod locks: advisory locks of a connection, not of a transaction, so that a slow cluster keeps none open.

A transaction that waits for a cluster is ended as idle, and keeps the database from cleaning up behind everybody else.
The lock of a connection lasts as long as its holder does and ends with it. It needs the server's own connections: a
pooler in between that hands one to many at a time would mix up their locks.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.connection import direct
from reservation_core.adapters.postgres.connection.driver_errors import map_to_unavailable
from reservation_core.adapters.postgres.connection.queries import statement
from reservation_core.ports.transactions import DatabaseUnavailableError

_LOCK_NOT_AVAILABLE = "55P03"


@asynccontextmanager
async def held(
    connection: AsyncConnection, reservation_ids: Sequence[str], patience: timedelta
) -> AsyncIterator[frozenset[str]]:
    """Those of these locks that are free, held while the block runs on a connection that commits each statement.

    One that is asked for alone is waited for with `patience`. A connection that can't give them back is closed, which
    does. Raises DatabaseUnavailableError, at the end too: what was done in the block was done without the locks then.
    What ended the block with an error or a cancellation is never hidden by that.
    """
    taken: frozenset[str] = frozenset()
    given_back = False
    try:
        with map_to_unavailable() as reached:
            reached.connected = True
            taken = await _take(connection, reservation_ids)
            if not taken and len(reservation_ids) == 1 and patience > timedelta(0):
                taken = await _wait(connection, reservation_ids[0], patience)
        try:
            yield taken
        except Exception:
            with suppress(DatabaseUnavailableError):
                await _give_back(connection, taken)
                given_back = True
            raise
        else:
            await _give_back(connection, taken)
            given_back = True
    finally:
        if not given_back:
            await connection.invalidate()


async def _take(connection: AsyncConnection, ids: Sequence[str]) -> frozenset[str]:
    if not ids:
        return frozenset()
    found = await direct.fetch(connection, "try_pod_locks", {"ids": sorted(set(ids))})
    return frozenset(row["id"] for row in found)


async def _wait(connection: AsyncConnection, reservation_id: str, patience: timedelta) -> frozenset[str]:
    """In a transaction of its own, which bounds the wait; the lock outlives it."""
    await connection.execution_options(isolation_level="READ COMMITTED")
    milliseconds = str(max(1, round(patience.total_seconds() * 1000)))
    try:
        async with connection.begin():
            await connection.execute(statement("bound_lock_wait"), {"milliseconds": milliseconds})
            await connection.execute(statement("wait_for_pod_lock"), {"id": reservation_id})
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) != _LOCK_NOT_AVAILABLE:
            raise
        return frozenset()
    return frozenset({reservation_id})


def check_still_held(connection: AsyncConnection) -> None:
    """Raise DatabaseUnavailableError when the connection was lost: asked again, it would be another, without locks."""
    if connection.closed or connection.invalidated:
        raise DatabaseUnavailableError("the database connection that held the pod locks was lost")


async def _give_back(connection: AsyncConnection, ids: frozenset[str]) -> None:
    if not ids:
        return
    check_still_held(connection)
    with map_to_unavailable() as reached:
        reached.connected = True
        await connection.execution_options(isolation_level="AUTOCOMMIT")
        await direct.fetch(connection, "give_back_pod_locks", {"ids": sorted(ids)})

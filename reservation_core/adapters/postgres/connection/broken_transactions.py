"""Connections on which a transaction neither began nor ended, which must not go back to their pool.

A statement that was cancelled, or for which the server had no memory, may fail before it has done its work. asyncpg
takes a BEGIN that failed for a transaction that stands: the next one on that connection would be a SAVEPOINT without a
transaction around it, or within one that has failed. It takes a COMMIT or ROLLBACK that failed for done, also where the
server's transaction is still there and refuses every statement. Either would go on for ever.
"""

import asyncpg
from asyncpg.transaction import TransactionState
from sqlalchemy import event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.ext.asyncio import AsyncEngine


def drop_where_transactions_broke(engine: AsyncEngine) -> None:
    """Have this engine close such a connection at once, and tell its user that the connection was lost."""
    event.listen(engine.sync_engine, "handle_error", _look)


def _look(context: ExceptionContext) -> None:
    if context.connection is None or context.connection.closed or context.connection.invalidated:
        return
    driver = context.connection.connection.driver_connection
    if driver is not None and _broke(driver):
        context.is_disconnect = True
        context.invalidate_pool_on_disconnect = False


def _broke(driver: asyncpg.Connection) -> bool:
    """Whether the driver and the server disagree about a transaction, or the one that they agree on never began."""
    thought = getattr(driver, "_top_xact", None)
    if thought is None:
        return not driver.is_closed() and driver.is_in_transaction()
    # One that was ended because its BEGIN got no answer knows of no transaction any more.
    return (
        driver.is_closed()
        or not driver.is_in_transaction()
        or getattr(thought, "_state", None) is TransactionState.FAILED
    )

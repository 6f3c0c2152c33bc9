"""Connections on which a transaction could not begin, which must not go back to their pool.

asyncpg takes a BEGIN that failed (it was cancelled, say, or the server was out of memory) for a transaction that
stands: the next one on that connection would be a SAVEPOINT without a transaction around it, and fail, for ever.
"""

from sqlalchemy import event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.ext.asyncio import AsyncEngine


def drop_where_begin_failed(engine: AsyncEngine) -> None:
    """Have this engine close such a connection at once, and tell its user that the connection was lost."""
    event.listen(engine.sync_engine, "handle_error", _look)


def _look(context: ExceptionContext) -> None:
    if context.connection is None or context.connection.closed or context.connection.invalidated:
        return
    driver = context.connection.connection.driver_connection
    begun = getattr(driver, "_top_xact", None) is not None
    # One that was ended because its BEGIN got no answer knows of no transaction any more.
    if driver is not None and begun and (driver.is_closed() or not driver.is_in_transaction()):
        context.is_disconnect = True
        context.invalidate_pool_on_disconnect = False

"""Which errors below and of SQLAlchemy say that the database is away, whatever was asked of it."""

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from reservation_core.ports.transactions import DatabaseUnavailableError, TransactionLostError

# Connection trouble, as the driver says it below SQLAlchemy. 57P01..3: the server is going down or coming up.
_UNAVAILABLE_SQLSTATES = ("08", "57P0", "53300")
# This transaction was ended to break a deadlock (40P01) or for the order of things (40001).
_LOST_SQLSTATES = ("40P01", "40001")
# Below SQLAlchemy or without it. InternalClientError: the connection was lost in the middle of something, and the
# driver no longer knows where it is.
_UNAVAILABLE_ERRORS = (
    ConnectionError,
    TimeoutError,
    socket.gaierror,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)
# The network's trouble that has no exception class of its own.
_UNREACHABLE = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN, errno.ENETRESET})
_DRIVER_ERRORS = (
    DBAPIError,
    OSError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    PoolTimeoutError,
)


class Reached:
    """Whether there was a connection when an error came up."""

    def __init__(self) -> None:
        self.connected = False


@contextmanager
def told_as_unavailable() -> Iterator[Reached]:
    """Raise DatabaseUnavailableError for what means that the database is away; every other error as it is.

    A transaction that was ended for others' sake is a TransactionLostError: the next try will do.
    Whatever the system says on the way there means that one can't get there: no such socket, no such host, or, when
    several addresses were tried, a bare OSError that tells them all. Say `connected` when that way is behind you.
    """
    reached = Reached()
    try:
        yield reached
    except _DRIVER_ERRORS as error:
        if _sqlstate(error) in _LOST_SQLSTATES:
            raise TransactionLostError("the database ended a transaction to let others go on") from error
        if (isinstance(error, OSError) and not reached.connected) or _unavailable(error):
            raise DatabaseUnavailableError(f"the database is not available ({type(error).__name__})") from error
        raise


def _sqlstate(error: BaseException) -> str:
    """PostgreSQL's code for it; empty for what is no error of the server's."""
    found = getattr(error.orig if isinstance(error, DBAPIError) else error, "sqlstate", None)
    return found if isinstance(found, str) else ""


def _unavailable(error: BaseException) -> bool:
    if isinstance(error, PoolTimeoutError) or _is_connection_trouble(error):
        return True
    if isinstance(error, DBAPIError):
        if error.connection_invalidated:
            return True
        driver_error = getattr(error.orig, "__cause__", None)
        return _sqlstate(error).startswith(_UNAVAILABLE_SQLSTATES) or (
            isinstance(driver_error, OSError) or _is_connection_trouble(driver_error)
        )
    return _sqlstate(error).startswith(_UNAVAILABLE_SQLSTATES)


def _is_connection_trouble(error: BaseException | None) -> bool:
    if isinstance(error, OSError) and error.errno in _UNREACHABLE:
        return True
    # A value that the driver can't send is an InterfaceError too, and a ValueError: waiting would not help it.
    return isinstance(error, _UNAVAILABLE_ERRORS) and not isinstance(error, ValueError)

"""Which errors of the driver and of SQLAlchemy will pass by themselves, whatever was asked of the database.

The codes are those of PostgreSQL's appendix A, "PostgreSQL Error Codes": five characters, the first two of them the
class. A code that speaks of the statement or its values (22, 23, 42 …) says nothing of the database, and travels on.
"""

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from reservation_core.ports.transactions import DatabaseUnavailableError, StatementRefusedError, TransactionLostError

_AWAY_SQLSTATES = (
    "08",  # connection exception
    "25P03",  # the server ended a session that idled in a transaction
    "25P04",  # the server ended a session whose transaction took too long
    "53300",  # too many connections
    "57P",  # going down, coming up, or the session was ended
)
_REFUSED_SQLSTATES = (
    "25006",  # read-only transaction: a standby, or a managed server whose disk is full
    "40003",  # statement completion unknown: it may have been committed
    "53",  # out of disk or memory, or another configured limit
    "55000",  # not in the state that this needs: the server recovers, say
    "55006",  # object in use
    "55P03",  # a lock was not to be had in time
    "57",  # operator intervention: cancelled, by hand or by a timeout
    "58",  # an error of the server's system: input and output, say
    "XX",  # an internal error, or damaged data
)
# This transaction was ended to break a deadlock (40P01) or for the order of things (40001): nothing of it happened.
_LOST_SQLSTATES = ("40",)
# Below SQLAlchemy or without it. InternalClientError: the connection was lost in the middle of something, and the
# driver no longer knows where it is.
_UNAVAILABLE_ERRORS = (
    ConnectionError,
    TimeoutError,
    socket.gaierror,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)
# The schema was changed under a statement that a connection had prepared. The driver prepares it anew at the next try.
_LOST_ERRORS = (asyncpg.InvalidCachedStatementError,)
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
def map_to_unavailable() -> Iterator[Reached]:
    """Raise DatabaseUnavailableError for what will pass by itself; every other error as it is.

    TransactionLostError for a transaction that was ended for the sake of others: the next try succeeds.
    StatementRefusedError where the server is there, and could not do this.
    Whatever the system says on the way to the database means that it can't be reached: no such socket, no such host,
    or, when several addresses were tried, a bare OSError that lists them all. Set `connected` once there is a
    connection.
    """
    reached = Reached()
    try:
        yield reached
    except _DRIVER_ERRORS as error:
        if (isinstance(error, OSError) and not reached.connected) or _away(error):
            raise DatabaseUnavailableError(f"the database is not available ({_shown(error)})") from error
        if sqlstate(error).startswith(_REFUSED_SQLSTATES):
            raise StatementRefusedError(f"the database refused a statement for now ({_shown(error)})") from error
        if _lost(error):
            raise TransactionLostError("the database ended a transaction to let others go on") from error
        raise


def sqlstate(error: BaseException) -> str:
    """PostgreSQL's code of an error of SQLAlchemy's or of the driver's; empty for one that is not the server's."""
    code = getattr(error.orig if isinstance(error, DBAPIError) else error, "sqlstate", None)
    return code if isinstance(code, str) else ""


def _shown(error: BaseException) -> str:
    code = sqlstate(error)
    return f"{type(error).__name__}, SQLSTATE {code}" if code else type(error).__name__


def _away(error: BaseException) -> bool:
    if isinstance(error, PoolTimeoutError) or sqlstate(error).startswith(_AWAY_SQLSTATES):
        return True
    below = _below(error)
    if _is_connection_trouble(error) or _is_connection_trouble(below) or isinstance(below, OSError):
        return True
    return isinstance(error, DBAPIError) and error.connection_invalidated


def _lost(error: BaseException) -> bool:
    if sqlstate(error).startswith(_LOST_SQLSTATES):
        return True
    return isinstance(error, _LOST_ERRORS) or isinstance(_below(error), _LOST_ERRORS)


def _below(error: BaseException) -> BaseException | None:
    """What the driver raised, for an error that SQLAlchemy made of it."""
    return getattr(error.orig, "__cause__", None) if isinstance(error, DBAPIError) else None


def _is_connection_trouble(error: BaseException | None) -> bool:
    if isinstance(error, OSError) and error.errno in _UNREACHABLE:
        return True
    # A value that the driver can't send is an InterfaceError too, and a ValueError: waiting would not help it.
    return isinstance(error, _UNAVAILABLE_ERRORS) and not isinstance(error, ValueError)

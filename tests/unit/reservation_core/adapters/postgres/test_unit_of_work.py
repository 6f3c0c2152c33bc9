"""When the database counts as away, and when an error is somebody else's."""

import errno
import socket
from typing import Any, cast

import asyncpg
import pytest
from pgmq.sqlalchemy_async_queue import PGMQueue

from reservation_core.adapters.postgres.connection.engine import open_engine
from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.ports.transactions import DatabaseUnavailableError

URL = "postgresql://me:word@db/gpu"


def factory() -> UnitOfWorkFactory:
    """Units of work on a server that nobody can reach."""
    return UnitOfWorkFactory(open_engine(URL, pool=1, application="test"), cast("PGMQueue", None), cast("Any", None))


@pytest.mark.parametrize("one_statement", [False, True])
@pytest.mark.parametrize(
    "error",
    [
        OSError("Multiple exceptions: [Errno 111] Connect call failed, [Errno 111] Connect call failed"),
        socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
        TimeoutError(),
        ConnectionRefusedError(errno.ECONNREFUSED, "refused"),
        FileNotFoundError(errno.ENOENT, "no such socket"),
        OSError(errno.EHOSTUNREACH, "No route to host"),
        asyncpg.CannotConnectNowError("the database system is starting up"),
        asyncpg.TooManyConnectionsError("sorry, too many clients already"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_who_can_not_get_there_is_told_that_the_database_is_away(
    monkeypatch: pytest.MonkeyPatch, error: Exception, one_statement: bool
) -> None:
    async def connect(**_arguments: Any) -> None:
        raise error

    monkeypatch.setattr(asyncpg, "connect", connect)
    with pytest.raises(DatabaseUnavailableError, match="the database is not available"):
        async with factory()(one_statement=one_statement):
            pytest.fail("there is no transaction")


@pytest.mark.parametrize("error", [asyncpg.InvalidPasswordError("wrong"), asyncpg.InvalidCatalogNameError("which?")])
async def test_a_server_that_refuses_is_not_away(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    async def connect(**_arguments: Any) -> None:
        raise error

    monkeypatch.setattr(asyncpg, "connect", connect)
    with pytest.raises(Exception, match=str(error.args[0])) as caught:
        async with factory()():
            pytest.fail("there is no transaction")
    assert not isinstance(caught.value, DatabaseUnavailableError)

"""Attribution of an error that comes up in a transaction."""

import errno
from typing import cast

import pytest
from pgmq.sqlalchemy_async_queue import PGMQueue

from reservation_core.adapters.postgres.connection.engine import open_engine
from reservation_core.adapters.postgres.connection.wakeups import PostgresWakeups
from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.ports.transactions import DatabaseUnavailableError


@pytest.mark.parametrize(
    ("error", "away"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), False),
        (FileNotFoundError(errno.ENOENT, "no such folder"), False),
        (OSError(errno.EHOSTUNREACH, "No route to host"), True),
        (ConnectionResetError(), True),
    ],
)
async def test_inside_a_transaction_only_the_network_speaks_of_the_database(
    database_url: str, error: OSError, away: bool
) -> None:
    engine = open_engine(database_url, pool=1, application="test")
    unit_of_work = UnitOfWorkFactory(engine, cast("PGMQueue", None), PostgresWakeups(database_url, "test"))
    try:
        with pytest.raises(DatabaseUnavailableError if away else type(error)) as caught:
            async with unit_of_work():
                raise error
        assert error in (caught.value, caught.value.__cause__)
    finally:
        await engine.dispose()

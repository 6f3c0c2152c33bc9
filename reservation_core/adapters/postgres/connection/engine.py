"""Connections to PostgreSQL: the pool of an engine, and single connections for listening."""

import time
from typing import Any, cast

import asyncpg
from sqlalchemy import URL, Connection, event, make_url
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from reservation_core.adapters.postgres.connection.bounded_connections import (
    CONNECT_S,
    PROVE_S,
    STATEMENT_S,
    BoundedConnection,
)
from reservation_core.adapters.postgres.connection.broken_transactions import drop_where_transactions_broke

STATEMENT_OPTION = "statement_s"
"""The execution option that says how long a statement of a connection may take, in seconds."""
IDLE_S = 60.0
"""A connection that was not used for so long is closed: its server process keeps caches of 2 to 10 MB."""
# The server ends a statement that its client has given up, or did not live to give up, so much later by itself.
_SERVER_LATER_S = 15.0
_WITHOUT_SKIP_SCANS = "SET timescaledb.enable_skipscan = off"
"""TimescaleDB 2.30 plans such scans for our tables, too, and can't execute some. Other servers ignore the setting."""

# What a URL may say that is meant for SQLAlchemy and that asyncpg itself does not know.
_FOR_THE_POOL_ALONE = frozenset({"prepared_statement_cache_size"})


def engine_url(url: str) -> URL:
    """Any PostgreSQL URL as SQLAlchemy and asyncpg want it. psql's `sslmode` is what asyncpg calls `ssl`."""
    parts = make_url(url).set(drivername="postgresql+asyncpg")
    mode = parts.query.get("sslmode")
    return parts if mode is None else parts.difference_update_query(["sslmode"]).update_query_dict({"ssl": mode})


def open_engine(
    url: str, *, pool: int, application: str, read_only: bool = False, statement_s: float = STATEMENT_S
) -> AsyncEngine:
    """A pool of at most `pool` connections. `application` names them in pg_stat_activity.

    A statement may take `statement_s` seconds, unless the execution option STATEMENT_OPTION says otherwise.
    """
    reading = {"default_transaction_read_only": "on"} if read_only else {}
    engine = create_async_engine(
        engine_url(url),
        pool_size=pool,
        max_overflow=0,
        pool_timeout=30,
        # Last in, first out: server processes that only a burst needed keep small caches.
        pool_use_lifo=True,
        # Parameters hold people's variables and the digests of their tokens: no error text may show them.
        hide_parameters=True,
        connect_args={
            **found_dead_soon(),
            # While a connection is set up; after that it is what the unit of work says.
            "command_timeout": PROVE_S,
            "server_settings": {
                "application_name": application,
                "timezone": "UTC",
                # A transaction that somebody forgot must not hold back every other (see the design's facts).
                # Nobody waits for anything but the database within a transaction. A process that is stopped in the
                # middle of one keeps others from leading for no longer than this.
                "idle_in_transaction_session_timeout": "15000",
                # The locks of a process whose machine is gone go with it in a minute, and not when the server's system
                # thinks of asking: two hours later.
                "tcp_keepalives_idle": "30",
                "tcp_keepalives_interval": "10",
                "tcp_keepalives_count": "3",
                # What was acknowledged must survive a crash, whatever the server's default is.
                "synchronous_commit": "on",
                # Our statements take arrays and use the same index whatever is in them; planning the long ones anew for
                # every call would cost as much as running them.
                "plan_cache_mode": "force_generic_plan",
                # They take milliseconds; compiling one takes up to 200, and is tried as soon as tables are large.
                "jit": "off",
                # The same of processes that help with one: all that is read is small and found by an index, also where
                # a plan that must fit all values expects a third of a table.
                "max_parallel_workers_per_gather": "0",
                "random_page_cost": "1.1",
                **reading,
            },
        },
    )
    _watch_over(engine, statement_s)
    drop_where_transactions_broke(engine)
    return engine


def _watch_over(engine: AsyncEngine, statement_s: float) -> None:
    """Hand out no connection that is known to be dead, bound statements, and close what only a burst needed."""
    silent_at = float("-inf")
    idle_since: dict[BoundedConnection, float] = {}  # the longest idle one is the first

    def fell_silent(at: float) -> None:
        nonlocal silent_at
        silent_at = at

    def connected(adapted: Any, _record: object) -> None:
        driver: BoundedConnection = adapted.driver_connection
        driver.on_silence = fell_silent
        # Not with the server_settings: poolers refuse a connection that says what they were not told to expect.
        milliseconds = round((statement_s + _SERVER_LATER_S) * 1000)
        settings = f"SET statement_timeout = {milliseconds}; {_WITHOUT_SKIP_SCANS}"
        adapted.run_async(lambda opened: opened.execute(settings))

    def checked_out(adapted: Any, _record: object, _proxy: object) -> None:
        driver: BoundedConnection = adapted.driver_connection
        idle_since.pop(driver, None)
        if driver.is_closed():
            raise DisconnectionError("the connection ended while nobody used it")
        if driver.opened_at <= silent_at:
            # One of its time fell silent, and it is likely to be as dead. Asking it would take as long again.
            driver.terminate()
            raise DisconnectionError("another connection of its time fell silent")

    def checked_in(adapted: Any, _record: object) -> None:
        if adapted is None:  # it was invalidated
            return
        now = time.monotonic()
        idle_since[adapted.driver_connection] = now
        longest = next(iter(idle_since))
        if now - idle_since[longest] > IDLE_S:
            del idle_since[longest]
            longest.terminate()  # the pool opens another in its place when it needs one

    def begun(connection: Connection) -> None:
        driver = cast("BoundedConnection", connection.connection.driver_connection)
        driver.bound_statements(connection.get_execution_options().get(STATEMENT_OPTION, statement_s))

    event.listen(engine.sync_engine, "connect", connected)
    event.listen(engine.sync_engine, "checkout", checked_out)
    event.listen(engine.sync_engine, "checkin", checked_in)
    event.listen(engine.sync_engine, "engine_connect", begun)


async def open_connection(url: str, application: str) -> asyncpg.Connection:
    """One connection outside the pool, for LISTEN and NOTIFY."""
    where = {**_connect_arguments(url), "server_settings": {"application_name": application}}
    return await asyncpg.connect(**{**found_dead_soon(), "command_timeout": PROVE_S, **where})


def found_dead_soon() -> dict[str, Any]:
    """What the driver is given so that a connection to nobody is not waited for, nor one to a server that is gone."""
    return {"connection_class": BoundedConnection, "timeout": CONNECT_S}


def _connect_arguments(url: str) -> dict[str, Any]:
    """Where and how to connect, exactly as the pool does: hosts, ports, TLS and whatever else the URL says."""
    parts = engine_url(url)
    _, arguments = parts.get_dialect()().create_connect_args(parts)
    return {name: value for name, value in arguments.items() if name not in _FOR_THE_POOL_ALONE}

"""Connections to PostgreSQL: the pool of an engine, and single connections for listening."""

from typing import Any

import asyncpg
from sqlalchemy import URL, make_url
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

# What a URL may say that is meant for SQLAlchemy and that asyncpg itself does not know.
_FOR_THE_POOL_ALONE = frozenset({"prepared_statement_cache_size"})


def engine_url(url: str) -> URL:
    """Any PostgreSQL URL as SQLAlchemy and asyncpg want it. psql's `sslmode` is what asyncpg calls `ssl`."""
    parts = make_url(url).set(drivername="postgresql+asyncpg")
    mode = parts.query.get("sslmode")
    return parts if mode is None else parts.difference_update_query(["sslmode"]).update_query_dict({"ssl": mode})


def open_engine(url: str, *, pool: int, application: str, read_only: bool = False) -> AsyncEngine:
    """A pool of at most `pool` connections. `application` names them in pg_stat_activity."""
    reading = {"default_transaction_read_only": "on"} if read_only else {}
    return create_async_engine(
        engine_url(url),
        pool_size=pool,
        max_overflow=0,
        pool_timeout=30,
        # Parameters hold people's variables and the digests of their tokens: no error text may show them.
        hide_parameters=True,
        connect_args={
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
                **reading,
            },
        },
    )


async def open_connection(url: str, application: str) -> asyncpg.Connection:
    """One connection outside the pool, for LISTEN and NOTIFY."""
    where = {**_connect_arguments(url), "server_settings": {"application_name": application}}
    return await asyncpg.connect(**{"timeout": 10, **where})


def _connect_arguments(url: str) -> dict[str, Any]:
    """Where and how to connect, exactly as the pool does: hosts, ports, TLS and whatever else the URL says."""
    parts = engine_url(url)
    _, arguments = parts.get_dialect()().create_connect_args(parts)
    return {name: value for name, value in arguments.items() if name not in _FOR_THE_POOL_ALONE}

"""Connections to PostgreSQL: the pool of an engine, and single connections for listening."""

import asyncpg
from sqlalchemy import URL, make_url
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine


def engine_url(url: str) -> URL:
    """Any PostgreSQL URL as SQLAlchemy and asyncpg want it."""
    return make_url(url).set(drivername="postgresql+asyncpg")


def open_engine(url: str, *, pool: int, application: str) -> AsyncEngine:
    """A pool of at most `pool` connections. `application` names them in pg_stat_activity."""
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
                "idle_in_transaction_session_timeout": "60000",
                # What was acknowledged must survive a crash, whatever the server's default is.
                "synchronous_commit": "on",
            },
        },
    )


async def open_connection(url: str, application: str) -> asyncpg.Connection:
    """One connection outside the pool, for LISTEN and NOTIFY."""
    parts = engine_url(url)
    host = parts.query.get("host", parts.host)
    return await asyncpg.connect(
        user=parts.username,
        password=parts.password,
        host=list(host) if isinstance(host, tuple) else host,
        port=parts.port,
        database=parts.database,
        server_settings={"application_name": application},
        timeout=10,
    )

"""Where a URL leads: the same place for the pool and for the connection beside it."""

from typing import Any

import asyncpg
import pytest

from reservation_core.adapters.postgres.connection.engine import open_connection, open_engine


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the driver was asked for; nobody answers."""
    calls: list[dict[str, Any]] = []

    async def connect(**arguments: Any) -> None:
        calls.append(arguments)
        raise ConnectionRefusedError

    monkeypatch.setattr(asyncpg, "connect", connect)
    return calls


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("postgresql://me:word@db:5433/gpu", {"host": "db", "port": 5433, "user": "me", "password": "word"}),
        ("postgresql://me@/gpu?host=/run/pg&port=5433", {"host": "/run/pg", "port": 5433}),
        ("postgresql://me@/gpu?host=a:1&host=b:2", {"host": ["a", "b"], "port": [1, 2]}),
        ("postgresql://me@db/gpu?ssl=verify-full", {"host": "db", "ssl": "verify-full"}),
        ("postgresql://me@db/gpu?sslmode=require", {"host": "db", "ssl": "require"}),
        ("postgresql://me@db/gpu?target_session_attrs=read-write", {"target_session_attrs": "read-write"}),
        ("postgresql+asyncpg://me@db/gpu?prepared_statement_cache_size=0", {"host": "db"}),
    ],
)
async def test_both_go_where_the_url_says(asked: list[dict[str, Any]], url: str, where: dict[str, Any]) -> None:
    engine = open_engine(url, pool=1, application="test")
    with pytest.raises(ConnectionRefusedError):
        await engine.connect()
    with pytest.raises(ConnectionRefusedError):
        await open_connection(url, "test")
    of_pool, beside = ({k: v for k, v in a.items() if k not in ("server_settings", "timeout")} for a in asked)
    assert beside == of_pool
    assert beside.items() >= {"database": "gpu", **where}.items()
    assert [arguments["server_settings"]["application_name"] for arguments in asked] == ["test", "test"]

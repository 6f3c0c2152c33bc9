"""Remembered tokens, and for how long."""

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from api_service.access.auth import Authenticator
from api_service.problems import ProblemError
from reservation_core.domain.statuses import Role
from reservation_core.ports.people.identities import Principal
from reservation_core.ports.transactions import DatabaseUnavailableError

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class World:
    """A database of tokens, a clock and ids in one."""

    def __init__(self) -> None:
        self.time = NOW
        self.valid: dict[bytes, Principal] = {b"alice": Principal(1, "alice", Role.USER, "tok-1", None)}
        self.lookups = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.away = False
        self.touched: list[dict[str, datetime]] = []
        self.identities = self

    def now(self) -> datetime:
        return self.time

    def digest(self, secret: str) -> bytes:
        return secret.encode()

    @asynccontextmanager
    async def uow(self) -> Any:
        if self.away:
            raise DatabaseUnavailableError("away")
        yield self

    async def principal(self, digest: bytes, _now: datetime) -> Principal | None:
        self.lookups += 1
        found = self.valid.get(digest)
        await self.gate.wait()
        return found

    async def touch_tokens(self, used: dict[str, datetime]) -> None:
        self.touched.append(used)


def _authenticator(world: Any, ttl_s: float = 60) -> Authenticator:
    return Authenticator(world.uow, world, world, ttl_s)


async def test_callers_at_once_share_a_lookup_and_later_ones_need_none() -> None:
    world = World()
    auth = _authenticator(world)
    await asyncio.gather(*(auth.principal("Bearer alice") for _ in range(10)))
    await auth.principal("Bearer alice")
    assert world.lookups == 1


async def test_nothing_is_remembered_of_tokens_that_are_not_valid() -> None:
    world = World()
    auth = _authenticator(world)
    for _ in range(2):
        with pytest.raises(ProblemError):
            await auth.principal("Bearer bob")
    assert world.lookups == 2


async def test_a_lookup_that_began_before_a_revocation_is_not_remembered() -> None:
    world = World()
    auth = _authenticator(world)
    world.gate.clear()
    early = asyncio.create_task(auth.principal("Bearer alice"))
    while not world.lookups:
        await asyncio.sleep(0)
    del world.valid[b"alice"]
    auth.forget_user("alice")
    world.gate.set()
    await early
    with pytest.raises(ProblemError):
        await auth.principal("Bearer alice")


async def test_last_use_survives_a_database_that_is_away() -> None:
    world = World()
    auth = _authenticator(world)
    await auth.principal("Bearer alice")
    world.away = True
    with pytest.raises(DatabaseUnavailableError):
        await auth.write_last_used()
    world.away = False
    world.time += timedelta(seconds=5)
    await auth.principal("Bearer alice")
    await auth.write_last_used()
    await auth.write_last_used()
    assert world.touched == [{"tok-1": NOW + timedelta(seconds=5)}]

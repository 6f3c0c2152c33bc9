"""The server's SSH keys: made once, sealed, and the same for all; whose key or certificate is whose."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncssh
import pytest

from reservation_core.adapters.postgres.connection.engine import open_engine
from reservation_core.adapters.postgres.connection.queues import open_client
from reservation_core.adapters.postgres.connection.wakeups import PostgresWakeups
from reservation_core.adapters.postgres.sealing import Sealing, is_sealed
from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.domain.statuses import TokenScope
from reservation_core.ports.sessions.ssh_keys import (
    KeyOwner,
    NewSshKey,
    ServerKey,
    ServerKeyPurpose,
    ServerKeyUnreadableError,
)
from reservation_core.usecases.sessions.server_keys import (
    certificate_authority,
    certificate_id,
    find_certificate_owner,
    find_key_owners,
    host_key,
    note_key_use,
)
from tests.clocks import START
from tests.database.sql import sql
from tests.integration.reservation_core.usecases.world import World


@asynccontextmanager
async def units(url: str, keys: Sequence[bytes] = ()) -> AsyncIterator[UnitOfWorkFactory]:
    engine = open_engine(url, pool=2, application="test")
    try:
        yield UnitOfWorkFactory(engine, await open_client(engine), PostgresWakeups(url, "test"), sealing=Sealing(keys))
    finally:
        await engine.dispose()


async def stored_key(uow: UnitOfWork) -> str:
    return str((await sql(uow, "SELECT private_key FROM ssh_server_keys WHERE purpose = 'host'")).scalar_one())


async def test_keys_are_made_once_and_can_be_used(database_url: str) -> None:
    async with units(database_url) as here:
        async with here() as uow:
            host, authority = await host_key(uow, START), await certificate_authority(uow, START)
        async with here() as uow:
            again = await host_key(uow, START + timedelta(days=400))
    assert again == host != authority
    for key in (host, authority):
        read = asyncssh.import_private_key(key.private_key)
        assert read.get_algorithm() == "ssh-ed25519"
        assert read.export_public_key().decode().split()[:2] == key.public_key.split()
    assert host.private_key not in repr(host)


async def test_processes_that_come_at_once_agree(database_url: str) -> None:
    async with units(database_url) as one, units(database_url) as other:
        async with one() as first:
            mine = await host_key(first, START)

            async def of_another() -> ServerKey:
                async with other() as uow:
                    return await host_key(uow, START)

            waiting = asyncio.create_task(of_another())
            done, _ = await asyncio.wait([waiting], timeout=0.5)
            assert not done, "the other process must wait for the one that was first"
        assert await waiting == mine


async def test_keys_are_sealed_where_there_is_a_sealing_key(database_url: str) -> None:
    key = bytes(range(32))
    async with units(database_url, [key]) as sealed, sealed() as uow:
        host = await host_key(uow, START)
        stored = await stored_key(uow)
        assert is_sealed(stored)
        assert await host_key(uow, START) == host
        await sql(uow, "INSERT INTO ssh_server_keys VALUES ('certificates', :key, now())", key=stored)
        with pytest.raises(ServerKeyUnreadableError, match="GPU_DEV_SEAL_KEY_FILE"):
            await certificate_authority(uow, START)  # a key for one purpose is none for another
    async with units(database_url) as plain, plain() as uow:
        with pytest.raises(ServerKeyUnreadableError, match="`host` can't be read: it was sealed with the key"):
            await uow.server_keys.key(ServerKeyPurpose.HOST, START)


async def test_a_key_may_be_several_peoples_and_disabled_ones_are_left_out(world: World) -> None:
    digest = hashlib.sha256(b"a key").digest()
    async with world.uow() as uow:
        bob = await uow.identities.create_user("bob", world.who.role, START)
        for number, user in enumerate((world.who.user_id, bob.id)):
            new = NewSshKey(f"key-{number}", user, None, digest, "ssh-ed25519 AAAA")
            _, fresh = await uow.ssh_keys.add(new, most=1, now=START)
            assert fresh
        assert [owner.user for owner in await find_key_owners(uow, digest)] == ["alice", "bob"]
        await uow.identities.disable_user("alice", START)
        assert await find_key_owners(uow, digest) == [KeyOwner("key-1", bob.id, "bob")]
        assert await find_key_owners(uow, hashlib.sha256(b"another").digest()) == []


async def test_uses_are_noted_at_most_every_30_seconds(world: World) -> None:
    async with world.uow() as uow:
        new = NewSshKey("key-1", world.who.user_id, None, bytes(32), "ssh-ed25519 AAAA")
        await uow.ssh_keys.add(new, most=1, now=START)
        noted = []
        for after_s in (0, 29, 30, 31):
            await note_key_use(uow, "key-1", START + timedelta(seconds=after_s))
            [key] = await uow.ssh_keys.page(world.who.user_id, after=None, limit=2)
            assert key.last_used_at is not None
            noted.append((key.last_used_at - START).total_seconds())
    assert noted == [0, 0, 30, 30]


async def test_a_certificate_is_worth_what_its_token_is(world: World) -> None:
    scopes = frozenset({TokenScope.SESSIONS})
    async with world.uow() as uow:
        end = START + timedelta(hours=1)
        await uow.identities.create_token("tok-1", world.who.user_id, None, bytes(32), end, START, scopes=scopes)
        principal = await find_certificate_owner(uow, certificate_id("alice", "tok-1"), START)
        assert principal is not None
        assert (principal.user, principal.token_id, principal.scopes) == ("alice", "tok-1", scopes)
        for wrong in (certificate_id("bob", "tok-1"), certificate_id("alice", "tok-2"), "alice", ""):
            assert await find_certificate_owner(uow, wrong, START) is None
        assert await find_certificate_owner(uow, certificate_id("alice", "tok-1"), end) is None
        await uow.identities.revoke_token("tok-1", None, START)
        assert await find_certificate_owner(uow, certificate_id("alice", "tok-1"), START) is None

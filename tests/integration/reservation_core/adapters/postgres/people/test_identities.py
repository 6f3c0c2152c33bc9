"""Users and tokens: who may come in, and who no longer."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from reservation_core.adapters.postgres.people.identities import Identities
from reservation_core.domain.errors import NameTakenError
from reservation_core.domain.statuses import Role
from reservation_core.ports.people.identities import Principal
from tests.waiting import PATIENCE_S

DIGEST = b"d" * 32


@pytest.fixture
async def people(engine) -> AsyncIterator[Identities]:
    async with engine.begin() as connection:
        yield Identities(connection)


async def test_a_token_tells_whose_it_is(people, seed) -> None:
    user = await people.create_user("ada", Role.ADMIN, seed.now)
    expires = seed.now + seed.hour
    token = await people.create_token("tok-1", user.id, "laptop", DIGEST, expires, seed.now)
    assert (token.user, token.name, token.created_at, token.expires_at) == ("ada", "laptop", seed.now, expires)
    assert await people.principal(DIGEST, seed.now) == Principal(user.id, "ada", Role.ADMIN, "tok-1", expires)
    assert await people.principal(b"x" * 32, seed.now) is None


async def test_a_token_ends_at_its_expiry(people, seed) -> None:
    user = await people.create_user("ada", Role.USER, seed.now)
    await people.create_token("tok-1", user.id, None, DIGEST, seed.now + seed.hour, seed.now)
    assert await people.principal(DIGEST, seed.now + seed.hour - timedelta(microseconds=1))
    assert await people.principal(DIGEST, seed.now + seed.hour) is None


async def test_a_token_without_expiry_goes_on(people, seed) -> None:
    user = await people.create_user("ada", Role.USER, seed.now)
    await people.create_token("tok-1", user.id, None, DIGEST, None, seed.now)
    assert await people.principal(DIGEST, seed.now + 100_000 * seed.hour)


async def test_a_revoked_token_is_nobodys(people, seed) -> None:
    user = await people.create_user("ada", Role.USER, seed.now)
    await people.create_token("tok-1", user.id, None, DIGEST, None, seed.now)
    revoked = await people.revoke_token("tok-1", user.id, seed.now)
    assert revoked is not None
    assert await people.principal(DIGEST, seed.now) is None
    again = await people.revoke_token("tok-1", None, seed.now + seed.hour)
    assert again is not None
    assert again.revoked_at == seed.now


async def test_others_cannot_revoke_a_token(people, seed) -> None:
    ada = await people.create_user("ada", Role.USER, seed.now)
    bob = await people.create_user("bob", Role.USER, seed.now)
    await people.create_token("tok-1", ada.id, None, DIGEST, None, seed.now)
    assert await people.revoke_token("tok-1", bob.id, seed.now) is None
    assert await people.revoke_token("tok-2", None, seed.now) is None
    assert await people.principal(DIGEST, seed.now)


async def test_a_disabled_users_tokens_stop_working(people, seed) -> None:
    user = await people.create_user("ada", Role.USER, seed.now)
    await people.create_token("tok-1", user.id, None, DIGEST, None, seed.now)
    disabled = await people.disable_user("ada", seed.now)
    assert disabled is not None
    assert disabled.disabled_at == seed.now
    assert await people.principal(DIGEST, seed.now) is None
    again = await people.disable_user("ada", seed.now + seed.hour)
    assert again == disabled
    assert await people.disable_user("bob", seed.now) is None


async def test_a_taken_name_leaves_the_transaction_usable(people, seed) -> None:
    first = await people.create_user("ada", Role.USER, seed.now)
    with pytest.raises(NameTakenError, match="choose another name"):
        await people.create_user("ada", Role.ADMIN, seed.now)
    assert await people.user("ada") == first
    assert await people.user("bob") is None


async def test_lists_go_on_after_the_last_seen(people, seed) -> None:
    users = [await people.create_user(name, Role.USER, seed.now) for name in ("ada", "bob", "eve")]
    for number, user in enumerate((users[0], users[1], users[0])):
        await people.create_token(f"tok-{number}", user.id, None, bytes([number]) * 32, None, seed.now)
    assert [u.name for u in await people.users(after=None, limit=2)] == ["ada", "bob"]
    assert [u.name for u in await people.users(after="bob", limit=2)] == ["eve"]
    assert [t.id for t in await people.tokens(users[0].id, after=None, limit=9)] == ["tok-0", "tok-2"]
    assert [t.id for t in await people.tokens(users[0].id, after="tok-0", limit=9)] == ["tok-2"]
    assert [(t.id, t.user) for t in await people.tokens(None, after="tok-0", limit=1)] == [("tok-1", "bob")]


async def test_last_use_is_written_for_many_and_never_goes_back(people, seed) -> None:
    user = await people.create_user("ada", Role.USER, seed.now)
    for number in range(2):
        await people.create_token(f"tok-{number}", user.id, None, bytes([number]) * 32, None, seed.now)
    later = seed.now + seed.hour
    await people.touch_tokens({})
    await people.touch_tokens({"tok-0": later, "tok-1": seed.now, "tok-unknown": later})
    await people.touch_tokens({"tok-0": seed.now, "tok-1": later})
    assert [t.last_used_at for t in await people.tokens(None, after=None, limit=9)] == [later, later]


async def test_two_writers_of_last_use_never_wait_for_each_other(engine, seed) -> None:
    user = await seed.user()
    async with engine.begin() as one, engine.begin() as two:
        for number in range(2):
            await seed.run(
                "INSERT INTO tokens (id, user_id, digest, created_at) VALUES (:id, :user, sha256(:d), :now)",
                id=f"tok-{number}", user=user, d=bytes([number]), now=seed.now,
            )  # fmt: skip
        await Identities(one).touch_tokens({"tok-0": seed.now})
        async with asyncio.timeout(PATIENCE_S):
            await Identities(two).touch_tokens({"tok-0": seed.now, "tok-1": seed.now})
    assert await seed.run("SELECT count(*) FROM tokens WHERE last_used_at IS NOT NULL") == 2

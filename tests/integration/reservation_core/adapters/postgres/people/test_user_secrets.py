"""Secrets in the database: sealed for their owner and name, with the newest key."""

import os
from collections.abc import AsyncIterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.people.user_secrets import UserSecrets
from reservation_core.adapters.postgres.sealing import Sealing
from reservation_core.domain.errors import NoSecretsKeyError
from reservation_core.ports.people.user_secrets import SecretUnreadableError
from tests.integration.reservation_core.adapters.postgres.conftest import Seed

OLD, NEW, OTHER = b"o" * 32, b"n" * 32, b"x" * 32
VALUE = "hunter2"


@pytest.fixture
async def connection(seed: Seed) -> AsyncIterator[AsyncConnection]:
    async with seed.engine.begin() as opened:
        yield opened


def secrets(connection: AsyncConnection, *keys: bytes) -> UserSecrets:
    """With keys of their own, other than those of all else."""
    return UserSecrets(connection, Sealing([OTHER], list(keys)))


async def sealed(connection: AsyncConnection) -> dict[str, str]:
    found = await connection.exec_driver_sql("SELECT name, sealed FROM user_secrets")
    return {row.name: row.sealed for row in found}


async def test_a_row_that_was_moved_opens_for_nobody(seed: Seed, connection: AsyncConnection) -> None:
    ann, bob = await seed.user("ann"), await seed.user("bob")
    store = secrets(connection, NEW)
    await store.put(ann, "a", VALUE, most=9, now=seed.now)
    assert await store.values(ann, ["a", "b"]) == {"a": VALUE}
    assert await store.values(bob, ["a"]) == {}
    for change, user, name in (
        (f"UPDATE user_secrets SET name = 'b' WHERE user_id = {ann}", ann, "b"),
        (f"UPDATE user_secrets SET user_id = {bob}, name = 'a'", bob, "a"),
    ):
        await connection.exec_driver_sql(change)
        with pytest.raises(SecretUnreadableError) as refused:
            await store.values(user, [name])
        assert VALUE not in str(refused.value)


async def test_the_database_takes_sealed_values_alone(seed: Seed) -> None:
    ann = await seed.user("ann")
    good = Sealing([NEW]).seal(VALUE, "x")
    statement = "INSERT INTO user_secrets VALUES (:user, :name, :sealed, :now, :now)"
    for name, value in (("a", VALUE), ("a", "gpu-dev:sealed:1:"), ("a", "x" + good), ("a", good + " "), ("_", good)):
        with pytest.raises(IntegrityError):
            await seed.run(statement, user=ann, name=name, sealed=value, now=seed.now)
    await seed.run(statement, user=ann, name="a", sealed=good, now=seed.now)


async def test_without_keys_nothing_is_stored(seed: Seed, connection: AsyncConnection) -> None:
    with pytest.raises(NoSecretsKeyError):
        await UserSecrets(connection, Sealing()).put(await seed.user(), "a", VALUE, most=9, now=seed.now)


async def test_a_new_key_seals_all_again_and_the_old_one_can_go(seed: Seed, connection: AsyncConnection) -> None:
    users = [await seed.user(name) for name in ("ann", "bob")]
    before = secrets(connection, OLD)
    for user in users:
        for name in "abcde":
            await before.put(user, name, f"{VALUE} {user} {name}", most=9, now=seed.now)
    both, after = secrets(connection, NEW, OLD), secrets(connection, NEW)
    assert await both.values(users[0], ["a"]) == {"a": f"{VALUE} {users[0]} a"}
    with pytest.raises(SecretUnreadableError, match="does not have"):
        await after.values(users[0], ["a"])
    last, steps = (0, ""), 0
    while True:
        found, unread = await both.reseal(last, 3)
        assert unread == 0
        steps += 1
        if len(found) < 3:
            break
        last = found[-1]
    assert steps == 4
    for user in users:
        assert await after.values(user, list("abcde")) == {name: f"{VALUE} {user} {name}" for name in "abcde"}
    assert await both.reseal((0, ""), 3) == ([], 0)
    updated = await connection.exec_driver_sql("SELECT count(*) FROM user_secrets WHERE updated_at <> created_at")
    assert updated.scalar_one() == 0


async def test_what_can_not_be_opened_stays_and_holds_up_nothing(seed: Seed, connection: AsyncConnection) -> None:
    ann = await seed.user("ann")
    store = secrets(connection, OLD)
    for name in "abc":
        await store.put(ann, name, VALUE, most=9, now=seed.now)
    await connection.exec_driver_sql(
        "UPDATE user_secrets SET sealed = (SELECT sealed FROM user_secrets WHERE name = 'a') WHERE name = 'b'"
    )
    moved = (await sealed(connection))["b"]
    both = secrets(connection, NEW, OLD)
    found, unread = await both.reseal((0, ""), 9)
    assert ([name for _, name in found], unread) == (["a", "b", "c"], 1)
    assert (await sealed(connection))["b"] == moved
    assert await secrets(connection, NEW).values(ann, ["a", "c"]) == {"a": VALUE, "c": VALUE}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    keys=st.lists(st.sampled_from([OLD, NEW, OTHER]), min_size=1, max_size=3, unique=True),
    value=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=200),
    who=st.tuples(st.integers(1, 99), st.text("abAB01._-", min_size=1, max_size=9)),
    other=st.tuples(st.integers(1, 99), st.text("abAB01._-", min_size=1, max_size=9)),
)
def test_every_rotation_opens_for_the_same_owner_and_name_alone(
    keys: list[bytes], value: str, who: tuple[int, str], other: tuple[int, str]
) -> None:
    def whose(owner: tuple[int, str]) -> str:
        return f"secret {owner[1]} of user {owner[0]}"

    stored = Sealing([], [keys[-1]]).secrets.seal(value, whose(who))
    rotated = Sealing([os.urandom(32)], keys).secrets
    assert rotated.open(stored, whose(who)) == value
    again = rotated.seal(value, whose(who))
    assert Sealing([], [keys[0]]).secrets.open(again, whose(who)) == value
    assert (again.split(":")[3] in rotated.former) is False
    assert (stored.split(":")[3] in rotated.former) is (len(keys) > 1)
    if other != who:
        with pytest.raises(Exception, match="not what was sealed"):
            rotated.open(stored, whose(other))

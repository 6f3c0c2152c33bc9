"""Idempotency-Keys: the second caller waits for the first and gets its answer; nothing is done twice."""

import asyncio

import pytest
from sqlalchemy import text

from reservation_core.adapters.postgres.history.idempotency import Idempotency
from reservation_core.domain.errors import IdempotencyConflictError
from reservation_core.ports.history.idempotency import StoredAnswer
from tests.waiting import PATIENCE_S

HASH = b"h" * 32
OTHER = b"o" * 32
WAITS = text(
    "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
)


async def claim(engine, seed, user, request_hash=HASH, key="k"):
    """One whole request: claim and, when the key was free, store an answer."""
    async with engine.begin() as connection:
        keys = Idempotency(connection)
        answer = await keys.claim(user, key, request_hash, seed.now)
        if answer is None:
            await keys.store(user, key, 201, b"done")
        return answer


async def somebody_waits(engine) -> None:
    async with engine.connect() as connection:
        async with asyncio.timeout(PATIENCE_S):
            while not await connection.scalar(WAITS):
                await connection.rollback()


async def test_the_same_request_gets_the_same_answer(engine, seed) -> None:
    user = await seed.user()
    assert await claim(engine, seed, user) is None
    assert await claim(engine, seed, user) == StoredAnswer(HASH, 201, b"done")


async def test_another_request_with_the_key_is_a_conflict(engine, seed) -> None:
    user = await seed.user()
    await claim(engine, seed, user)
    with pytest.raises(IdempotencyConflictError, match="another request"):
        await claim(engine, seed, user, OTHER)


async def test_users_have_their_own_keys(engine, seed) -> None:
    assert await claim(engine, seed, await seed.user("ada")) is None
    assert await claim(engine, seed, await seed.user("bob"), OTHER) is None


async def test_a_second_caller_waits_and_gets_the_first_ones_answer(engine, seed) -> None:
    user = await seed.user()
    async with engine.begin() as connection:
        first = Idempotency(connection)
        assert await first.claim(user, "k", HASH, seed.now) is None
        second = asyncio.create_task(claim(engine, seed, user))
        await somebody_waits(engine)
        assert not second.done()
        await first.store(user, "k", 201, b"the first one's")
    assert await second == StoredAnswer(HASH, 201, b"the first one's")


async def test_a_second_caller_goes_on_when_the_first_fails(engine, seed) -> None:
    user = await seed.user()
    async with engine.connect() as connection:
        assert await Idempotency(connection).claim(user, "k", HASH, seed.now) is None
        second = asyncio.create_task(claim(engine, seed, user))
        await somebody_waits(engine)
        await connection.rollback()
    assert await second is None


async def test_many_at_once_act_once(engine, seed) -> None:
    user = await seed.user()
    answers = await asyncio.gather(*(claim(engine, seed, user) for _ in range(8)))
    assert answers.count(None) == 1
    assert answers.count(StoredAnswer(HASH, 201, b"done")) == 7


async def test_a_key_whose_answer_was_not_kept_is_not_free(engine, seed) -> None:
    user = await seed.user()
    async with engine.begin() as connection:
        await Idempotency(connection).claim(user, "k", HASH, seed.now)
    with pytest.raises(IdempotencyConflictError, match="was not kept"):
        await claim(engine, seed, user)


async def test_an_answer_needs_a_claim_and_is_given_once(engine, seed) -> None:
    user = await seed.user()
    async with engine.begin() as connection:
        keys = Idempotency(connection)
        with pytest.raises(LookupError):
            await keys.store(user, "k", 201, b"")
        await keys.claim(user, "k", HASH, seed.now)
        await keys.store(user, "k", 201, b"")
        with pytest.raises(LookupError):
            await keys.store(user, "k", 500, b"another")

"""Submitting: many in one transaction, and what an Idempotency-Key names only once."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.identity.ids import RandomIds
from reservation_core.adapters.postgres.jobs import submissions
from reservation_core.contracts.jobs import JobSubmit
from reservation_core.domain.errors import ForbiddenError, LimitExceededError
from reservation_core.domain.statuses import JobStatus
from reservation_core.ports.jobs.reservations import NewReservation
from reservation_core.ports.queues import QueueName
from reservation_core.usecases.jobs.submit import prepare, submit
from tests.integration.reservation_core.usecases.world import World
from tests.waiting import eventually


async def waiting(world: World) -> list[str]:
    """Waiting jobs, in queue order."""
    async with world.uow() as uow:
        return [view.reservation.id for view in await uow.reservations.waiting_views(None, limit=100, after=None)]


async def test_a_batch_is_stored_whole_and_in_order(world: World) -> None:
    batch = [world.new(name=str(number)) for number in range(10)]
    answers = await submit(world.uow, batch, world.clock.now())
    ids = [new.reservation.id for new in batch]
    assert [answer.reservation_id for answer in answers] == ids
    assert await waiting(world) == ids
    async with world.uow() as uow:
        messages = await uow.queue.read(QueueName.GPU_JOBS, visibility=timedelta(seconds=1), limit=100)
    about = [message.body["id"] for message in messages if message.body["kind"] == "submitted"]
    assert about == ids
    for job_id in ids:
        row = await world.row(job_id)
        assert (row.status, row.created_at) == (JobStatus.QUEUED, world.clock.now())
        [event] = await world.events(job_id)
        assert (event.kind, event.actor, event.before, event.after) == ("submitted", "alice", None, "queued")


async def test_a_repeated_key_gets_the_answer_of_the_first(world: World) -> None:
    first = world.new(key="k")
    await submit(world.uow, [first], world.clock.now())
    again, other, fresh = world.new(key="k"), world.new(key="k", request=b"2"), world.new(key="l")
    answers = await submit(world.uow, [again, other, fresh], world.clock.now())
    assert answers[0].replayed_answer == first.reservation.id.encode()
    assert answers[1].conflict
    assert (answers[2].replayed_answer, answers[2].conflict) == (None, False)
    assert await waiting(world) == [first.reservation.id, fresh.reservation.id]


async def test_a_key_that_comes_twice_in_one_batch_is_stored_once(world: World) -> None:
    first, again, other = world.new(key="k"), world.new(key="k"), world.new(key="k", request=b"2")
    answers = await submit(world.uow, [first, again, other, world.new()], world.clock.now())
    assert (answers[0].replayed_answer, answers[0].conflict) == (None, False)
    assert answers[1].replayed_answer == first.reservation.id.encode()
    assert answers[2].conflict
    assert len(await waiting(world)) == 2
    assert await world.depth("gpu_jobs") - 1 == 2  # and the inventory's own


async def test_batches_with_the_same_keys_in_other_orders_do_not_wait_in_a_circle(world: World) -> None:
    async def store(keys: str) -> list[bool]:
        answers = await submit(world.uow, [world.new(key=key) for key in keys], world.clock.now())
        return [answer.replayed_answer is None for answer in answers]

    async def blocked() -> bool:
        return (await world.sql("SELECT count(*) FROM pg_locks WHERE NOT granted")).scalar_one() == 2

    async with world.uow() as uow:
        await uow.idempotency.claim(world.who.user_id, "m", b"1" * 32, world.clock.now())
        await uow.idempotency.store(world.who.user_id, "m", 202, b"job-m")
        one, two = (asyncio.create_task(store(keys)) for keys in ("amz", "zma"))
        await eventually(blocked)
    stored = [*await one, *await two]
    assert stored.count(True) == 2
    assert len(await waiting(world)) == 2


async def test_one_that_may_not_be_stored_leaves_its_key_to_the_next_and_fails_nobody_else(world: World) -> None:
    first, innocent, second = world.new(key="k", project="nope"), world.new(), world.new(key="k", request=b"2")
    answers = await submit(world.uow, [first, innocent, second], world.clock.now())
    assert [(answer.conflict, answer.refusal) for answer in answers] == [(True, None), (False, None), (False, None)]
    assert await waiting(world) == [innocent.reservation.id, second.reservation.id]


async def test_a_key_that_is_forgotten_just_then_is_as_if_never_used(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the statement that finds it used and the one that reads what it was answered with."""
    await submit(world.uow, [world.new(key="k")], world.clock.now())
    ask = submissions._stored_answers

    async def forgotten(connection: AsyncConnection, repeated: Sequence[NewReservation]) -> object:
        await connection.execute(text("DELETE FROM idempotency_keys"))
        return await ask(connection, repeated)

    monkeypatch.setattr(submissions, "_stored_answers", forgotten)
    again, other = world.new(key="k"), world.new()
    answers = await submit(world.uow, [again, other], world.clock.now())
    assert [(answer.replayed_answer, answer.conflict, answer.refusal) for answer in answers] == [
        (None, False, None)
    ] * 2
    assert {again.reservation.id, other.reservation.id} < set(await waiting(world))


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"duration": 3601}, LimitExceededError),
        ({"duration": 60, "priority": 1}, ForbiddenError),
    ],
)
async def test_what_the_rules_refuse_says_what_to_do(
    world: World, fields: dict[str, object], error: type[Exception]
) -> None:
    body = JobSubmit.model_validate({"gpus": 1, "workload": {"command": ["true"]}, **fields})
    with pytest.raises(error, match=r"\. \w+"):
        prepare(body, world.who, ids=RandomIds(), longest=timedelta(hours=1), now=world.clock.now())

"""The consumer loop on a real queue: once each, again after failures, dead letters, and an orderly stop."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.queues import (
    DeadLetter,
    MessageNotDueError,
    QueuedMessage,
    QueueName,
    RetryLaterError,
    UnrecoverableMessageError,
)
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.ports.wakeups import Channel
from reservation_core.runtime.loops.consumer import Consumer, ConsumerRules, Handler
from reservation_core.runtime.loops.token_bucket import TokenBucket
from reservation_core.runtime.wiring import Runtime
from tests.database.sql import sql
from tests.waiting import PATIENCE_S, eventually

QUEUE = QueueName.POD_OPERATIONS
RULES = ConsumerRules(parallel=3, visibility=timedelta(seconds=30), max_reads=3, sweep=timedelta(milliseconds=50))


@asynccontextmanager
async def consuming(runtime: Runtime, handle: Handler, rules: ConsumerRules = RULES) -> AsyncIterator[asyncio.Event]:
    """A consumer at work while the block runs; the event stops it."""
    stop = asyncio.Event()
    consumer = Consumer(runtime.uow, QUEUE, handle, rules, TokenBucket(1000, 1000))
    task = asyncio.create_task(consumer.run(runtime.wakeups, Channel.POD_OPERATIONS, stop))
    try:
        yield stop
    finally:
        stop.set()
        await task


async def send(runtime: Runtime, *numbers: int) -> None:
    async with runtime.uow() as uow:
        await uow.queue.send(QUEUE, [{"number": number} for number in numbers])
        uow.wake(Channel.POD_OPERATIONS)


async def depth(runtime: Runtime) -> int:
    async with runtime.uow() as uow:
        return {m.queue: m.depth for m in await uow.queue.metrics()}[QUEUE.value]


async def letters(runtime: Runtime) -> list[DeadLetter]:
    async with runtime.uow() as uow:
        return await uow.queue.dead_letters(QUEUE, 10)


def empty(runtime: Runtime) -> Callable[[], Awaitable[bool]]:
    async def is_empty() -> bool:
        return await depth(runtime) == 0

    return is_empty


def all_taken(runtime: Runtime) -> Callable[[], Awaitable[bool]]:
    async def are_taken() -> bool:
        async with runtime.uow() as uow:
            visible = "SELECT EXISTS (SELECT FROM pgmq.q_pod_operations WHERE vt <= clock_timestamp())"
            return not (await sql(uow, visible)).scalar_one()

    return are_taken


async def show_hidden(runtime: Runtime) -> list[float]:
    """Make hidden messages visible now; answers how many seconds each had still to hide."""
    async with runtime.uow() as uow:
        hidden = await sql(
            uow,
            "WITH hidden AS (SELECT msg_id, vt FROM pgmq.q_pod_operations WHERE vt > clock_timestamp()) "
            "UPDATE pgmq.q_pod_operations q SET vt = clock_timestamp() FROM hidden h WHERE h.msg_id = q.msg_id "
            "RETURNING CAST(extract(epoch FROM h.vt - clock_timestamp()) AS float8)",
        )
        return list(hidden.scalars())


async def test_every_message_is_handled_once_and_forgotten(runtime: Runtime) -> None:
    seen: list[int] = []

    async def handle(message: QueuedMessage) -> None:
        seen.append(message.body["number"])

    async with consuming(runtime, handle):
        await send(runtime, *range(20))
        await eventually(empty(runtime))
    assert sorted(seen) == list(range(20))


async def test_a_failure_is_tried_again_after_a_growing_pause_and_then_buried_with_its_error(runtime: Runtime) -> None:
    tries: list[int] = []
    times: list[float] = []

    async def handle(message: QueuedMessage) -> None:
        tries.append(message.read_count)
        times.append(asyncio.get_running_loop().time())
        raise ValueError("this message is bad")

    async with consuming(runtime, handle):
        await send(runtime, 1)
        await eventually(empty(runtime))
    assert tries == [1, 2, 3]
    first, second, third = times
    assert second - first >= 1
    assert third - second >= 2
    [letter] = await letters(runtime)
    assert (letter.body, letter.error, letter.read_count) == ({"number": 1}, "ValueError: this message is bad", 3)


@pytest.mark.parametrize("error", [DatabaseUnavailableError("away"), ClusterUnavailableError("away")])
async def test_trouble_that_is_nobodys_fault_brings_no_message_nearer_to_burial(
    runtime: Runtime, error: Exception
) -> None:
    tries: list[int] = []
    rules = replace(RULES, parallel=1)

    async def handle(message: QueuedMessage) -> None:
        tries.append(message.read_count)
        if len(tries) <= 2 * RULES.max_reads:
            raise error
        raise ValueError("this message is bad")

    async with consuming(runtime, handle, rules):
        await send(runtime, 1)

        async def buried() -> bool:
            await show_hidden(runtime)
            return await depth(runtime) == 0

        await eventually(buried)
    # However long that lasted, a message's own failures have all their tries.
    assert tries == [1] * 2 * RULES.max_reads + [1, 2, 3]
    [letter] = await letters(runtime)
    assert letter.error == "ValueError: this message is bad"


async def test_what_can_not_be_done_yet_comes_again_when_it_can_and_no_nearer_to_burial(runtime: Runtime) -> None:
    tries: list[int] = []
    at: list[float] = []

    async def handle(message: QueuedMessage) -> None:
        tries.append(message.read_count)
        at.append(asyncio.get_running_loop().time())
        if len(tries) < 2:
            raise MessageNotDueError("not so fast", timedelta(seconds=1))

    async with consuming(runtime, handle):
        await send(runtime, 1)
        await eventually(empty(runtime))
    assert tries == [1, 1]
    assert at[1] - at[0] >= 1


async def test_what_fails_for_a_known_reason_comes_again_when_that_says_and_counts(runtime: Runtime) -> None:
    tries: list[int] = []

    async def handle(message: QueuedMessage) -> None:
        tries.append(message.read_count)
        raise RetryLaterError("its receiver is busy", timedelta(seconds=40))

    async with consuming(runtime, handle, replace(RULES, max_reads=2)):
        await send(runtime, 1)
        await eventually(lambda: tries)
        [hidden] = await eventually(lambda: show_hidden_after(runtime, 35))
        assert 35 < hidden <= 40
        await eventually(empty(runtime))
    assert tries == [1, 2]
    assert [letter.error for letter in await letters(runtime)] == ["its receiver is busy"]


async def show_hidden_after(runtime: Runtime, at_least: float) -> list[float]:
    """Make a message visible once it was put off for longer than its visibility."""
    async with runtime.uow() as uow:
        put_off = "SELECT EXISTS (SELECT FROM pgmq.q_pod_operations WHERE vt > clock_timestamp() + :s * interval '1 s')"
        found = (await sql(uow, put_off, s=at_least)).scalar_one()
    return await show_hidden(runtime) if found else []


async def test_what_is_hopeless_is_buried_at_once(runtime: Runtime) -> None:
    tries: list[int] = []

    async def handle(message: QueuedMessage) -> None:
        tries.append(message.read_count)
        raise UnrecoverableMessageError("there is no such place")

    async with consuming(runtime, handle):
        await send(runtime, 1)
        await eventually(empty(runtime))
    assert tries == [1]
    assert [letter.error for letter in await letters(runtime)] == ["there is no such place"]


async def test_what_takes_longer_than_it_is_hidden_is_not_taken_by_another(runtime: Runtime) -> None:
    seen: list[int] = []
    go_on = asyncio.Event()

    async def handle(message: QueuedMessage) -> None:
        seen.append(message.id)
        await go_on.wait()

    hidden = timedelta(seconds=2)
    async with (
        consuming(runtime, handle, replace(RULES, visibility=hidden)),
        consuming(runtime, handle, replace(RULES, visibility=hidden)),
    ):
        begun = asyncio.get_running_loop().time()
        await send(runtime, 1)
        await eventually(lambda: seen)
        await eventually(lambda: asyncio.get_running_loop().time() > begun + 2.5 * hidden.total_seconds())
        assert len(seen) == 1
        go_on.set()
        await eventually(empty(runtime))


async def test_what_was_in_the_hands_of_a_dead_process_comes_again(runtime: Runtime) -> None:
    seen: list[str] = []

    async def never(_message: QueuedMessage) -> None:
        seen.append("never")
        await asyncio.Event().wait()

    async def handle(_message: QueuedMessage) -> None:
        seen.append("done")

    rules = replace(RULES, visibility=timedelta(seconds=1))
    consumer = Consumer(runtime.uow, QUEUE, never, rules, TokenBucket(1000, 1000))
    task = asyncio.create_task(consumer.run(runtime.wakeups, Channel.POD_OPERATIONS, asyncio.Event()))
    await send(runtime, 1)
    await eventually(lambda: seen)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    async with consuming(runtime, handle):
        await eventually(empty(runtime))
    assert seen == ["never", "done"]


async def test_no_more_than_the_rules_allow_are_under_way(runtime: Runtime) -> None:
    under_way: set[int] = set()
    most = 0
    go_on = asyncio.Event()

    async def handle(message: QueuedMessage) -> None:
        nonlocal most
        under_way.add(message.id)
        most = max(most, len(under_way))
        await go_on.wait()
        under_way.discard(message.id)

    async with consuming(runtime, handle):
        await send(runtime, *range(10))
        await eventually(lambda: len(under_way) == RULES.parallel)
        go_on.set()
        await eventually(empty(runtime))
    assert most == RULES.parallel


async def test_a_stop_finishes_what_is_under_way_and_begins_nothing(runtime: Runtime) -> None:
    begun: list[int] = []
    go_on = asyncio.Event()

    async def handle(message: QueuedMessage) -> None:
        begun.append(message.id)
        await go_on.wait()

    async with consuming(runtime, handle) as stop:
        await send(runtime, *range(5))
        await eventually(lambda: len(begun) == RULES.parallel)
        stop.set()
        go_on.set()
    assert len(begun) == RULES.parallel
    assert await depth(runtime) == 5 - RULES.parallel


async def test_an_idle_consumer_stops_at_once(runtime: Runtime) -> None:
    async def handle(_message: QueuedMessage) -> None:
        raise AssertionError("there is nothing to handle")

    rules = ConsumerRules(parallel=1, visibility=timedelta(seconds=1), max_reads=1, sweep=timedelta(hours=1))
    async with asyncio.timeout(PATIENCE_S), consuming(runtime, handle, rules):
        await eventually(empty(runtime))


async def test_a_message_is_found_without_a_wake_up(runtime: Runtime) -> None:
    seen = asyncio.Event()

    async def handle(_message: QueuedMessage) -> None:
        seen.set()

    async with consuming(runtime, handle):
        async with runtime.uow() as uow:
            await uow.queue.send(QUEUE, [{"number": 1}])
        await eventually(seen.is_set)


@pytest.mark.parametrize(
    "failing", [None, ClusterUnavailableError("away"), DatabaseUnavailableError("away"), ValueError("one is bad")]
)
async def test_what_is_not_handled_together_is_handled_one_by_one(runtime: Runtime, failing: Exception | None) -> None:
    """Odd numbers together, unless that fails; whatever was not, by itself: each once."""
    handled: list[int] = []
    groups: list[int] = []

    async def together(messages: Sequence[QueuedMessage]) -> Sequence[QueuedMessage]:
        groups.append(len(messages))
        if failing is not None:
            raise failing
        odd = [message for message in messages if message.body["number"] % 2]
        handled.extend(message.body["number"] for message in odd)
        return odd

    async def handle(message: QueuedMessage) -> None:
        handled.append(message.body["number"])

    await send(runtime, *range(50))
    stop = asyncio.Event()
    rules = replace(RULES, together=10)
    consumer = Consumer(runtime.uow, QUEUE, handle, rules, TokenBucket(1000, 1000), together)
    task = asyncio.create_task(consumer.run(runtime.wakeups, Channel.POD_OPERATIONS, stop))
    await eventually(empty(runtime))
    stop.set()
    await task
    assert sorted(handled) == list(range(50))
    assert groups
    assert max(groups) <= 10


async def test_few_groups_are_under_way_however_few_messages_each_is_about(runtime: Runtime) -> None:
    """Messages that come by twos while the cluster is slow must not take all connections."""
    begun, most, go_on = [0], [0], asyncio.Event()

    async def together(messages: Sequence[QueuedMessage]) -> Sequence[QueuedMessage]:
        begun[0] += 1
        most[0] = max(most[0], begun[0])
        await go_on.wait()
        begun[0] -= 1
        return messages

    async def handle(_message: QueuedMessage) -> None:
        return

    stop = asyncio.Event()
    consumer = Consumer(runtime.uow, QUEUE, handle, RULES, TokenBucket(1000, 1000), together)
    task = asyncio.create_task(consumer.run(runtime.wakeups, Channel.POD_OPERATIONS, stop))
    for number in range(6):
        await send(runtime, number, number)
        await eventually(all_taken(runtime))
    go_on.set()
    await eventually(empty(runtime))
    stop.set()
    await task
    assert most == [4]


async def test_the_next_group_is_read_before_there_is_room_for_it(runtime: Runtime) -> None:
    """Four are under way, one is ready; the rest is left to others."""
    under_way: list[int] = []
    go_on = asyncio.Event()

    async def together(messages: Sequence[QueuedMessage]) -> Sequence[QueuedMessage]:
        under_way.append(len(messages))
        await go_on.wait()
        return messages

    async def handle(_message: QueuedMessage) -> None:
        return

    async def ten_are_left() -> bool:
        async with runtime.uow() as uow:
            visible = "SELECT count(*) FROM pgmq.q_pod_operations WHERE vt <= clock_timestamp()"
            left = (await sql(uow, visible)).scalar_one()
        return under_way == [10] * 4 and left == 10

    stop = asyncio.Event()
    await send(runtime, *range(60))
    rules = replace(RULES, together=10)
    consumer = Consumer(runtime.uow, QUEUE, handle, rules, TokenBucket(1000, 1000), together)
    task = asyncio.create_task(consumer.run(runtime.wakeups, Channel.POD_OPERATIONS, stop))
    await eventually(ten_are_left)
    go_on.set()
    await eventually(empty(runtime))
    stop.set()
    await task

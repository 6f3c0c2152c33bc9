"""A task beside a block: it ends with the block, and the block ends with it."""

import asyncio

import pytest

from reservation_core.runtime.processes.companions import beside


async def forever(ended: list[str]) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        ended.append("in order")


async def fails() -> None:
    raise ZeroDivisionError("no such luck")


def cancellations() -> int:
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()


async def test_the_task_ends_with_the_block() -> None:
    ended: list[str] = []
    async with beside(forever(ended), name="companion"):
        await asyncio.sleep(0)
    assert ended == ["in order"]


async def test_the_block_keeps_its_own_errors() -> None:
    ended: list[str] = []

    async def block() -> None:
        async with beside(forever(ended), name="companion"):
            await asyncio.sleep(0)
            raise KeyError

    with pytest.raises(KeyError):
        await block()
    assert ended == ["in order"]


async def test_a_block_that_waits_ends_when_the_task_fails_and_the_error_travels() -> None:
    cleaned: list[bool] = []

    async def block() -> None:
        async with beside(fails(), name="companion"):
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                cleaned.append(True)

    with pytest.raises(ZeroDivisionError, match="no such luck"):
        await block()
    assert cleaned == [True]
    assert cancellations() == 0
    await asyncio.sleep(0)  # nothing is left over that would cancel what comes next


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
async def test_an_error_that_comes_as_the_block_ends_travels_too(turns: int) -> None:
    failing = asyncio.Event()

    async def fails_when_told() -> None:
        await failing.wait()
        raise ZeroDivisionError

    async def block() -> None:
        async with beside(fails_when_told(), name="companion"):
            await asyncio.sleep(0)
            failing.set()
            for _ in range(turns):
                await asyncio.sleep(0)

    if turns == 0:
        await block()  # the task was ended before it came to fail
    else:
        with pytest.raises(ZeroDivisionError):
            await block()
    assert cancellations() == 0
    await asyncio.sleep(0)


async def test_a_cancellation_from_outside_stays_one() -> None:
    ended: list[str] = []
    begun = asyncio.Event()

    async def block() -> None:
        async with beside(forever(ended), name="companion"):
            await asyncio.sleep(0)
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(block())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["in order"]

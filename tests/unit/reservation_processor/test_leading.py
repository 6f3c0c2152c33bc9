"""What is repeated for ever: pauses grow while it fails, and are short again when it went well."""

import asyncio

import pytest

from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_processor.leading import FIRST_PAUSE_S, forever
from tests.waiting import PATIENCE_S, eventually

DOWN = ClusterUnavailableError("down")


async def pauses(monkeypatch: pytest.MonkeyPatch, outcomes: list[Exception | None], longest_s: float) -> list[float]:
    """The pauses between steps with these outcomes, each of which lasts no time."""
    made: list[float] = []

    async def sleep(seconds: float) -> None:
        made.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    left = iter(outcomes)

    async def step() -> None:
        outcome = next(left, asyncio.CancelledError())
        if outcome is not None:
            raise outcome

    with pytest.raises(asyncio.CancelledError):
        await forever(step, longest_s=longest_s)
    return made


async def test_what_goes_on_failing_is_tried_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    made = await pauses(monkeypatch, [DOWN] * 8, 5)
    assert made[0] <= FIRST_PAUSE_S
    assert all(2.5 <= pause <= 5 for pause in made[4:])


async def test_a_success_lets_them_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    made = await pauses(monkeypatch, [*[DOWN] * 5, None, DOWN], 60)
    assert made[4] > 4 * FIRST_PAUSE_S
    assert made[5] <= FIRST_PAUSE_S


async def test_an_error_of_ours_travels(monkeypatch: pytest.MonkeyPatch) -> None:
    async def step() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await forever(step)


async def test_a_cancellation_that_is_told_as_an_error_ends_it_too() -> None:
    """A group of tasks that was cancelled tells only what failed while it ended."""
    begun: list[asyncio.Task[None]] = []

    async def child() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise DOWN

    async def step() -> None:
        async with asyncio.TaskGroup() as group:
            begun.append(group.create_task(child()))

    task = asyncio.create_task(forever(step))
    await eventually(lambda: begun)
    task.cancel()
    await asyncio.wait([task], timeout=PATIENCE_S)
    assert task.cancelled()
    assert len(begun) == 1


async def test_it_ends_as_cancelled_while_it_pauses() -> None:
    """And not with a group of errors, which would end the process."""
    tried = asyncio.Event()

    async def step() -> None:
        tried.set()
        raise DOWN

    task = asyncio.create_task(forever(step, longest_s=60))
    await tried.wait()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task], timeout=PATIENCE_S)
    assert task.cancelled()

"""Components run together, or not at all."""

import asyncio
from datetime import timedelta

import pytest

from reservation_core.ports import ClusterUnavailableError
from reservation_core.runtime.wiring import SettingsError
from standalone.components import ComponentFailedError, every, run_together


async def waits(stop: asyncio.Event, ended: list[str]) -> None:
    await stop.wait()
    ended.append("in order")


async def test_all_end_in_order_when_asked() -> None:
    stop, ended = asyncio.Event(), list[str]()
    asyncio.get_running_loop().call_soon(stop.set)
    await run_together({"one": waits(stop, ended), "two": waits(stop, ended)}, stop)
    assert ended == ["in order", "in order"]


async def test_the_failure_of_one_ends_all_and_is_told() -> None:
    stop, ended = asyncio.Event(), list[str]()

    async def fails() -> None:
        raise ZeroDivisionError("no such luck")

    with pytest.raises(ComponentFailedError, match="The broken failed: ZeroDivisionError: no such luck") as caught:
        await run_together({"sound": waits(stop, ended), "broken": fails()}, stop)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert ended == ["in order"]


async def test_a_component_that_just_ends_is_a_failure_too() -> None:
    stop, ended = asyncio.Event(), list[str]()

    async def returns() -> None:
        return

    with pytest.raises(ComponentFailedError, match="The quitter ended by itself"):
        await run_together({"sound": waits(stop, ended), "quitter": returns()}, stop)
    assert ended == ["in order"]


async def test_one_that_does_not_end_is_cancelled() -> None:
    stop, cancelled = asyncio.Event(), list[bool]()

    async def hangs() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    stop_soon = asyncio.get_running_loop().call_soon
    stop_soon(stop.set)
    await run_together({"hangs": hangs(), "sound": waits(stop, [])}, stop, patience=timedelta(milliseconds=10))
    assert cancelled == [True]


async def test_unusable_settings_keep_their_own_words() -> None:
    async def refuses() -> None:
        raise SettingsError("choose another port")

    with pytest.raises(SettingsError, match="choose another port"):
        await run_together({"API": refuses()}, asyncio.Event())


async def test_a_timer_goes_on_when_the_cluster_can_not_be_asked_and_fails_with_anything_else() -> None:
    stop, calls = asyncio.Event(), list[int]()

    async def act() -> None:
        calls.append(1)
        if len(calls) < 3:
            raise ClusterUnavailableError("not now")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await every(timedelta(milliseconds=1), act, stop)
    assert len(calls) == 3

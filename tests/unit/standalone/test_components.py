"""Components run together, or not at all."""

import asyncio
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.runtime.settings_error import SettingsError
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


@pytest.mark.parametrize(
    "trouble",
    [
        ClusterUnavailableError("not now"),
        DatabaseUnavailableError("not now"),
        ExceptionGroup("tasks", [ExceptionGroup("inner", [DatabaseUnavailableError("not now")])]),
    ],
    ids=lambda trouble: type(trouble).__name__,
)
async def test_a_timer_goes_on_when_somebody_is_away_and_fails_with_anything_else(trouble: Exception) -> None:
    stop, calls = asyncio.Event(), list[int]()

    async def act() -> None:
        calls.append(1)
        if len(calls) < 3:
            raise trouble
        raise ZeroDivisionError

    with capture_logs() as told, pytest.raises(ZeroDivisionError):
        await every(timedelta(milliseconds=1), act, stop)
    assert len(calls) == 3
    assert [(line["log_level"], line["error"]) for line in told] == [("warning", "not now")] * 2


async def test_a_mistake_beside_an_absence_is_not_hidden_by_it() -> None:
    async def act() -> None:
        raise ExceptionGroup("tasks", [DatabaseUnavailableError("not now"), ZeroDivisionError()])

    with pytest.raises(ExceptionGroup) as caught:
        await every(timedelta(milliseconds=1), act, asyncio.Event())
    assert caught.group_contains(ZeroDivisionError)

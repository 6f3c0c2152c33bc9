"""What is repeated for ever: pauses grow while it fails, and are short again when it went well."""

import asyncio

import pytest

from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_processor.leading import FIRST_PAUSE_S, forever

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

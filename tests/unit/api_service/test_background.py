"""Work beside the requests goes on, whatever it meets."""

import asyncio

import pytest

from api_service import background


async def test_what_fails_is_begun_again_and_what_is_cancelled_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "AGAIN_S", 0)
    begun, third = 0, asyncio.Event()

    async def work() -> None:
        nonlocal begun
        begun += 1
        if begun < 3:
            raise ValueError("nobody foresaw this")
        third.set()
        await asyncio.Event().wait()

    going = asyncio.create_task(background.kept_going("work", work))
    await third.wait()
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
    assert begun == 3


async def test_what_ends_by_itself_is_over() -> None:
    async def work() -> None:
        return None

    await background.kept_going("work", work)

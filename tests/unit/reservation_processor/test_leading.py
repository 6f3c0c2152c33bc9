"""What the leader's loops say of themselves, while the time between their steps passes."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from reservation_core.runtime.loops.loops import PATIENCE_S, Loops
from reservation_core.runtime.settings.components import ProcessorSettings
from reservation_processor import leading
from tests.virtual_time import run_virtually

HOUR_S = 3600.0


class _Runtime:
    """Only its loops."""

    def __init__(self) -> None:
        self.loops = Loops(counted=asyncio.get_running_loop().time)


def test_a_removal_that_failed_is_known_at_once_and_no_longer_than_until_one_goes_well(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """However rarely it looks: a processor of which a loop fails for a minute is not ready."""
    settings = ProcessorSettings(home=tmp_path, retention={"look_s": HOUR_S})
    looks: list[float] = []

    async def remove(*_: object) -> None:
        looks.append(asyncio.get_running_loop().time())
        await asyncio.sleep(10)
        if len(looks) == 1:
            raise TimeoutError

    async def watched() -> None:
        runtime: Any = _Runtime()
        loop = runtime.loops["retention"]
        task = asyncio.create_task(leading._remove_old(runtime, settings))
        await asyncio.sleep(11)
        assert (loop.failures, loop.failing_since is None) == (1, False)
        while len(looks) < 2:
            await asyncio.sleep(1)
        await asyncio.sleep(11)
        assert not runtime.loops.failing()
        await asyncio.sleep(2 * HOUR_S)
        assert not runtime.loops.failing(PATIENCE_S)
        task.cancel()

    monkeypatch.setattr(leading, "remove_old_once", remove)
    run_virtually(watched())
    rests = [after - before - 10 for before, after in pairwise(looks)]
    assert 10 < rests[0] < PATIENCE_S
    assert rests[1] == pytest.approx(HOUR_S)

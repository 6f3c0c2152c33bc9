"""How often the leader chains what is recorded."""

import asyncio
from typing import Any

import pytest

from reservation_core.runtime.loops.loops import Loops
from reservation_core.usecases.history.audit_chain import BATCH
from reservation_processor import audit_chaining


class Runtime:
    """As much of a runtime as chaining takes."""

    def __init__(self) -> None:
        self.uow = None
        self.loops = Loops()


def rests_after(monkeypatch: pytest.MonkeyPatch, *chained: int) -> list[float]:
    """How long it rests after turns that chain so many events."""
    left, rests = list(chained), list[float]()

    async def chain_events(_uow: object) -> int:
        return left.pop(0)

    async def note(seconds: float) -> None:
        rests.append(seconds)
        if not left:
            raise asyncio.CancelledError

    class Asyncio:
        get_running_loop = staticmethod(asyncio.get_running_loop)
        sleep = staticmethod(note)

    runtime: Any = Runtime()
    monkeypatch.setattr(audit_chaining, "chain_events", chain_events)
    monkeypatch.setattr(audit_chaining, "asyncio", Asyncio)

    async def scenario() -> None:
        turn = asyncio.ensure_future(audit_chaining.keep_chaining(runtime))
        while left:
            await asyncio.sleep(0)
        turn.cancel()
        await asyncio.gather(turn, return_exceptions=True)

    asyncio.run(scenario())
    return rests


def test_some_events_are_chained_twice_a_second_and_a_backlog_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    idle, steady, behind = rests_after(monkeypatch, 0, 3, BATCH)
    assert idle == steady == audit_chaining.LOOK_EVERY_S
    assert behind < audit_chaining.LOOK_EVERY_S

"""Components run together: one that ends is started again, and only one that can't start ends them all."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.runtime.loops import loops as loops_module
from reservation_core.runtime.loops.loops import Loops
from reservation_core.runtime.settings.error import SettingsError
from standalone import components
from standalone.components import ComponentFailedError, run_together
from tests.waiting import eventually


@pytest.fixture(autouse=True)
def brief_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops_module, "FIRST_PAUSE_S", 0.001)


def waits(stop: asyncio.Event, ended: list[str]) -> Callable[[], Awaitable[None]]:
    async def run() -> None:
        ended.append("begun")
        await stop.wait()
        ended.append("in order")

    return run


class Failing:
    """Fails each time that it is told to, after it has worked; else it works until `stop`."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop
        self.starts = 0
        self.next: asyncio.Queue[Exception | None] = asyncio.Queue()

    async def run(self) -> None:
        self.starts += 1
        told, stopped = asyncio.ensure_future(self.next.get()), asyncio.ensure_future(self._stop.wait())
        await asyncio.wait((told, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if self._stop.is_set():
            told.cancel()
        elif (error := told.result()) is not None:
            raise error


async def test_all_end_in_order_when_asked() -> None:
    stop, ended = asyncio.Event(), list[str]()
    running = asyncio.create_task(run_together({"one": waits(stop, ended), "two": waits(stop, ended)}, stop, Loops()))
    await eventually(lambda: ended == ["begun", "begun"])
    ended.clear()
    stop.set()
    await running
    assert ended == ["in order", "in order"]


async def test_one_that_has_worked_is_started_again_whatever_it_fails_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(components, "CAN_NOT_START_S", 0.0)
    stop, ended, loops = asyncio.Event(), list[str](), Loops()
    failing = Failing(stop)
    running = asyncio.create_task(
        run_together({"sound": waits(stop, ended), "Ending of pods": failing.run}, stop, loops)
    )
    errors = [
        ZeroDivisionError("no such luck"),
        None,  # it just ends
        ExceptionGroup("tasks", [DatabaseUnavailableError("away"), KeyError("mistake")]),
        SettingsError("that port is taken now"),
    ]
    for count, error in enumerate(errors, 1):
        failing.next.put_nowait(error)
        await eventually(lambda count=count: failing.starts == count + 1)
    assert not running.done()
    assert loops["component_ending_of_pods"].failures == len(errors)
    assert loops["component_ending_of_pods"].failing_since is not None
    assert loops["component_sound"].failures == 0
    stop.set()
    await running
    assert ended == ["begun", "in order"]


@pytest.mark.parametrize(
    "trouble",
    [
        ClusterUnavailableError("not now"),
        DatabaseUnavailableError("not now"),
        ExceptionGroup("tasks", [ExceptionGroup("inner", [DatabaseUnavailableError("not now")])]),
    ],
    ids=lambda trouble: type(trouble).__name__,
)
async def test_trouble_that_passes_ends_nothing_even_at_the_start(trouble: Exception) -> None:
    stop = asyncio.Event()
    failing = Failing(stop)
    failing.next.put_nowait(trouble)
    running = asyncio.create_task(run_together({"processor": failing.run}, stop, Loops()))
    await eventually(lambda: failing.starts == 2)
    stop.set()
    await running


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ZeroDivisionError("no such luck"), "The broken can't start: ZeroDivisionError: no such luck"),
        (ExceptionGroup("tasks", [DatabaseUnavailableError("away"), KeyError("x")]), "The broken can't start: "),
        (None, "The broken can't start: The broken ended unexpectedly"),
    ],
)
async def test_one_that_can_not_start_ends_all_and_says_why_once(error: Exception | None, words: str) -> None:
    stop, ended = asyncio.Event(), list[str]()
    failing = Failing(stop)
    failing.next.put_nowait(error)
    with capture_logs() as logs, pytest.raises(ComponentFailedError, match=words):
        await run_together({"sound": waits(stop, ended), "broken": failing.run}, stop, Loops())
    assert failing.starts == 1
    assert ended == ["begun", "in order"]
    assert [line["component"] for line in logs] == ["broken"]


@pytest.mark.parametrize("grouped", [False, True])
async def test_unusable_settings_at_the_start_keep_their_own_words(grouped: bool) -> None:
    async def refuses() -> None:
        error = SettingsError("choose another port")
        raise ExceptionGroup("tasks", [DatabaseUnavailableError("away"), error]) if grouped else error

    with capture_logs() as logs, pytest.raises(SettingsError, match="choose another port"):
        await run_together({"API": refuses}, asyncio.Event(), Loops())
    assert logs == []


async def test_one_that_does_not_end_is_cancelled() -> None:
    stop, cancelled = asyncio.Event(), list[bool]()

    async def hangs() -> None:
        stop.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    patience = timedelta(milliseconds=10)
    await run_together({"hangs": hangs, "sound": waits(stop, [])}, stop, Loops(), patience=patience)
    assert cancelled == [True]

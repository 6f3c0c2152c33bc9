"""Waiting at the start: for what passes, until asked to stop, with few words."""

import asyncio

import pytest
from structlog.testing import capture_logs

from reservation_core.adapters.postgres.connection.migrating import DatabaseAwayError
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.runtime.loops import start_waiting
from reservation_core.runtime.loops.start_waiting import StoppedError, wait_for_start
from tests.virtual_time import run_virtually


@pytest.fixture(autouse=True)
def brief_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_waiting, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(start_waiting, "LONGEST_PAUSE_S", 0.001)


class Away:
    """Fails so often, and then answers."""

    def __init__(self, error: Exception, times: int) -> None:
        self._error = error
        self.left = times

    async def __call__(self) -> str:
        if self.left == 0:
            return "there"
        self.left -= 1
        raise self._error


@pytest.mark.parametrize("kind", [DatabaseUnavailableError, ClusterUnavailableError, DatabaseAwayError])
async def test_what_passes_is_waited_for_with_one_line_at_each_end(kind: type[Exception]) -> None:
    with capture_logs() as logs:
        assert await wait_for_start(Away(kind("away"), 50)) == "there"
    assert [line["event"] for line in logs] == ["waiting to start", "the start goes on"]
    assert (logs[0]["error"], logs[0]["log_level"]) == ("away", "warning")
    assert logs[0]["since"].endswith("Z")


async def test_a_long_wait_is_told_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_waiting, "LOGGED_AGAIN_S", 0.0)
    with capture_logs() as logs:
        await wait_for_start(Away(DatabaseUnavailableError("away"), 5))
    assert len([line for line in logs if line["event"] == "waiting to start"]) == 5


async def test_nothing_is_said_where_nothing_is_waited_for() -> None:
    with capture_logs() as logs:
        assert await wait_for_start(Away(DatabaseUnavailableError("away"), 0)) == "there"
    assert logs == []


async def test_a_program_that_is_asked_to_stop_waits_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_waiting, "FIRST_PAUSE_S", 3600.0)
    monkeypatch.setattr(start_waiting, "LONGEST_PAUSE_S", 3600.0)
    stop = asyncio.Event()
    waiting = asyncio.create_task(wait_for_start(Away(DatabaseUnavailableError("away"), 10**9), stop=stop))
    asyncio.get_running_loop().call_later(0.01, stop.set)
    with pytest.raises(StoppedError):
        await waiting


def test_one_that_looks_once_waits_for_a_bounded_time() -> None:
    away = Away(DatabaseUnavailableError("away"), 10**9)
    with pytest.raises(DatabaseUnavailableError):
        run_virtually(wait_for_start(away, longest_s=0.05))
    assert away.left < 10**9 - 1  # it has tried again


async def test_every_other_error_travels() -> None:
    with pytest.raises(ZeroDivisionError):
        await wait_for_start(Away(ZeroDivisionError(), 1))

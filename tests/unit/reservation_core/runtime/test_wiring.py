"""What a process works with is opened and closed together, whatever goes wrong on the way."""

from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from reservation_core.adapters.local.cluster import LocalCluster
from reservation_core.adapters.postgres.connection.wakeups import PostgresWakeups
from reservation_core.runtime.settings.components import CommonSettings
from reservation_core.runtime.wiring import open_runtime
from tests.waiting import eventually

URL = "postgresql://127.0.0.1:1/nothing"


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was closed, in order."""
    done: list[str] = []
    close, dispose = LocalCluster.close, AsyncEngine.dispose

    async def close_cluster(self: LocalCluster) -> None:
        await close(self)
        done.append("cluster")

    async def dispose_of_engine(self: AsyncEngine) -> None:
        await dispose(self)
        done.append("engine")

    monkeypatch.setattr(LocalCluster, "close", close_cluster)
    monkeypatch.setattr(AsyncEngine, "dispose", dispose_of_engine)
    return done


async def test_a_process_whose_wake_ups_fail_goes_on_and_says_so(
    monkeypatch: pytest.MonkeyPatch, closed: list[str], tmp_path: Path
) -> None:
    async def run(_self: PostgresWakeups, _listening: object) -> None:
        raise ZeroDivisionError("no such luck")

    monkeypatch.setattr(PostgresWakeups, "run", run)
    async with open_runtime(CommonSettings(home=tmp_path, local_gpus="h100:1"), URL) as runtime:
        await eventually(lambda: runtime.loops["wake_ups"].failures > 1)
        assert [loop.name for loop in runtime.loops.failing()] == ["wake_ups"]
    assert closed == ["cluster", "engine"]


async def test_a_cluster_that_does_not_close_keeps_no_connection_open(
    monkeypatch: pytest.MonkeyPatch, closed: list[str], tmp_path: Path
) -> None:
    async def close(_self: LocalCluster) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(LocalCluster, "close", close)
    with pytest.raises(ZeroDivisionError):
        async with open_runtime(CommonSettings(home=tmp_path, local_gpus="h100:1"), URL):
            pass
    assert closed == ["engine"]

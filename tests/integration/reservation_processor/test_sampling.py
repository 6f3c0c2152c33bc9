"""The use of GPUs, from a recording or a driver into the database."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import asyncpg
import pytest

from reservation_core.adapters.local.gpu_use.nvml_sampler import NvmlSampler
from reservation_core.domain.gpu_use.samples import GpuSample
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.runtime.gpu_use import open_gpu_sampler
from reservation_core.runtime.processes.companions import beside
from reservation_core.runtime.settings.components import ClusterKind, ProcessorSettings, StandaloneSettings
from reservation_core.runtime.settings.error import SettingsError
from reservation_core.runtime.wiring import Runtime, open_runtime
from reservation_core.usecases.nodes.update_inventory import update_inventory
from reservation_processor import sampling
from reservation_processor.sampling import Sampling, keep_sampling
from tests.database.sql import sql
from tests.waiting import eventually

RECORDING = "at_s,gpu,utilisation,processes\n0,0,0.5,1\n1,0,0.75,1\n"


@pytest.fixture
def recorded(tmp_path: Path) -> StandaloneSettings:
    file = tmp_path / "use.csv"
    file.write_text(RECORDING)
    return StandaloneSettings(home=tmp_path / "home", local_gpus="h100:2", local_use=file, sample_every_s=1)


@asynccontextmanager
async def opened(settings: StandaloneSettings, database_url: str) -> AsyncIterator[Runtime]:
    async with open_runtime(settings, database_url) as runtime:
        await update_inventory(runtime.uow, runtime.cluster, runtime.clock)
        yield runtime


async def stored(database_url: str) -> list[tuple[int, int]]:
    """Indices of GPUs, and their utilisation in thousandths."""
    connection = await asyncpg.connect(database_url.replace("postgresql+asyncpg", "postgresql"))
    try:
        rows = await connection.fetch(
            "SELECT g.index, s.utilisation FROM gpu_samples s JOIN gpus g ON g.id = s.gpu_id ORDER BY s.at"
        )
        return [(row["index"], row["utilisation"]) for row in rows]
    finally:
        await connection.close()


async def test_a_recording_is_played_back_into_the_database(recorded: StandaloneSettings, database_url: str) -> None:
    async with opened(recorded, database_url) as runtime, beside(keep_sampling(runtime, recorded), name="sampling"):

        async def some() -> list[tuple[int, int]]:
            rows = await stored(database_url)
            return rows if len(rows) > 1 else []

        rows = await eventually(some)
    # The recording has no second GPU: that one has no samples.
    assert set(rows) <= {(0, 500), (0, 750)}


async def test_simulated_gpus_without_a_recording_have_no_samples(tmp_path: Path, database_url: str) -> None:
    settings = StandaloneSettings(home=tmp_path, local_gpus="h100:1")
    async with opened(settings, database_url) as runtime:
        assert runtime.gpu_sampler is None
        await keep_sampling(runtime, settings)  # is over at once
    assert await stored(database_url) == []


class Looks:
    """A sampler of these GPUs, and the times at which it was asked."""

    def __init__(self, uuids: Sequence[str] = ("GPU-sim-n-0",)) -> None:
        self.times: list[datetime] = []
        self.terms = 0
        self._uuids = uuids

    def begin(self) -> None:
        self.terms += 1

    async def look(self, at: datetime) -> Sequence[GpuSample]:
        self.times.append(at)
        return [GpuSample(uuid, at, utilisation=0.5) for uuid in self._uuids]

    async def close(self) -> None:
        """Nothing is open."""


async def test_samples_wait_while_the_database_is_away(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = StandaloneSettings(home=tmp_path, local_gpus="n=h100:1")
    async with opened(settings, database_url) as runtime:
        looks = Looks()
        work = Sampling(replace(runtime, gpu_sampler=looks), looks, 600)

        async def refuse(*_: Any) -> int:
            raise DatabaseUnavailableError("away")

        with monkeypatch.context() as away:
            away.setattr(sampling, "store_samples", refuse)
            for _ in range(2):
                with pytest.raises(DatabaseUnavailableError):
                    await work.once()
        assert len(looks.times) == 1  # the second try came before the next look
        await work.once()
        assert await stored(database_url) == [(0, 500)]
        # Without anything to store it waits for the next look.
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await work.once()
        assert len(looks.times) == 1


async def test_a_sampler_is_told_of_each_lease(tmp_path: Path, database_url: str) -> None:
    settings = ProcessorSettings(home=tmp_path, sample_every_s=1)
    async with opened(StandaloneSettings(home=tmp_path, local_gpus="n=h100:1"), database_url) as runtime:
        looks = Looks()
        for terms in (1, 2):
            async with beside(keep_sampling(replace(runtime, gpu_sampler=looks), settings), name="sampling"):
                await eventually(lambda: len(looks.times) >= terms)  # noqa: B023 - asked in this round alone
            assert looks.terms == terms


async def test_the_speed_of_a_gpu_is_that_of_its_own_nodes_samples(tmp_path: Path, database_url: str) -> None:
    settings = StandaloneSettings(home=tmp_path, local_gpus="n=h100:1")

    class Lies(Looks):
        async def look(self, at: datetime) -> Sequence[GpuSample]:
            before = at - timedelta(minutes=10)
            true = GpuSample("GPU-sim-n-0", before, utilisation=0.9, clock_mhz=1500, throttled=False)
            return [true, replace(true, clock_mhz=100, throttled=True, node="z"), replace(true, at=at)]

    async with opened(settings, database_url) as runtime:
        lies = Lies()
        await Sampling(replace(runtime, gpu_sampler=lies), lies, 600).once()
        async with runtime.uow() as uow:
            [row] = (await sql(uow, "SELECT busy, throttled, clock_mhz FROM gpu_speeds")).all()
    assert tuple(row) == (1, 0, 1500)


@pytest.mark.parametrize(("began_s", "every_s", "wait_s"), [(0.5, 10, 14.5), (9.9, 10, 5.1), (50, 60, 40)])
async def test_looks_are_in_the_middle_of_steps(
    monkeypatch: pytest.MonkeyPatch, began_s: float, every_s: float, wait_s: float
) -> None:
    """A delay near an edge would put two looks into one step, and none into the next."""
    now = datetime(2030, 1, 1, 12, tzinfo=UTC) + timedelta(seconds=began_s)
    looks = Looks(())
    work = Sampling(cast("Runtime", SimpleNamespace(clock=SimpleNamespace(now=lambda: now))), looks, every_s)
    await work.once()
    assert looks.times == [now.replace(microsecond=0)]
    waits: list[float] = []

    async def note(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", note)
    await work.once()
    assert waits == [pytest.approx(wait_s, abs=2)]


async def test_what_samples_by_the_settings(tmp_path: Path) -> None:
    def settings(**values: Any) -> StandaloneSettings:
        return StandaloneSettings(home=tmp_path, **values)

    assert isinstance(open_gpu_sampler(settings()), NvmlSampler)
    assert open_gpu_sampler(settings(cluster=ClusterKind.KUBERNETES)) is None
    file = tmp_path / "use.csv"
    with pytest.raises(SettingsError, match=r"GPU_DEV_LOCAL_USE=.*can't be read"):
        open_gpu_sampler(settings(local_gpus="h100:1", local_use=file))
    file.write_text("at_s,gpu,speed\n0,0,1\n")
    with pytest.raises(SettingsError, match="Line 2: `speed`"):
        open_gpu_sampler(settings(local_gpus="h100:1", local_use=file))
    with pytest.raises(SettingsError, match="Set GPU_DEV_LOCAL_GPUS"):
        open_gpu_sampler(settings(local_use=file))

"""The leader samples the use of this machine's GPUs."""

import asyncio
from collections import deque
from datetime import date
from math import ceil

import structlog

from reservation_core.domain.gpu_use.gpu_speeds import SpeedSlice, SpeedTally
from reservation_core.domain.gpu_use.samples import GpuSample
from reservation_core.ports.gpu_use import GpuSampler
from reservation_core.runtime.settings.components import ProcessorSettings
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.gpu_use.store_samples import store_samples

MOST_UNSENT = 100_000
"""The samples that wait for the database; beyond, the oldest are missing."""
_AT_ONCE = 60_000
_log = structlog.get_logger(__name__)


async def keep_sampling(runtime: Runtime, settings: ProcessorSettings) -> None:
    """Sample until cancelled, and store each look in a batch; at once where there are no samples."""
    sampler = runtime.gpu_sampler
    if sampler is None:
        return
    sampler.begin()
    await runtime.loops["gpu_use"].repeat(Sampling(runtime, sampler, settings.sample_every_s).once)


class Sampling:
    """One look in each step of `every_s` seconds since 1970. Samples wait while the database is away."""

    def __init__(self, runtime: Runtime, sampler: GpuSampler, every_s: float) -> None:
        self._runtime = runtime
        self._sampler = sampler
        self._every_s = every_s
        self._unsent: deque[GpuSample] = deque(maxlen=MOST_UNSENT)
        self._tally = SpeedTally()
        self._slices: deque[SpeedSlice] = deque(maxlen=MOST_UNSENT)
        self._due_s: float | None = None
        self._day: date | None = None

    async def once(self) -> None:
        """Wait for the next look, take it, and store what is not stored yet."""
        clock = asyncio.get_running_loop().time
        due_s = clock() if self._due_s is None else self._due_s
        if not self._unsent:
            await asyncio.sleep(due_s - clock())
        if clock() >= due_s:
            at = self._runtime.clock.now()
            self._due_s = clock() + _wait_s(at.timestamp(), self._every_s)
            self._unsent.extend(await self._sampler.look(at.replace(microsecond=0)))
        await self._make_days()
        while self._unsent:
            batch = [*self._unsent][:_AT_ONCE]
            known = await store_samples(self._runtime.uow, batch)
            if len(known) < len(batch):
                _log.debug("some samples are of unknown GPUs or of another time", samples=len(batch), kept=len(known))
            for _ in batch:
                self._unsent.popleft()
            self._slices.extend(self._tally.add(known))
        if self._slices:
            async with self._runtime.uow() as uow:
                await uow.gpu_health.add_speeds([*self._slices])
            self._slices.clear()

    async def _make_days(self) -> None:
        """Make partitions at the begin and on each new day: samples come before the first look at old history."""
        today = self._runtime.clock.now().date()
        if self._unsent and self._day != today:
            async with self._runtime.uow() as uow:
                await uow.retention.make_gpu_use_partitions()
            self._day = today


def _wait_s(at_s: float, every_s: float) -> float:
    """How long to wait for the middle of the next step.

    Near a step's edge a little delay would put two looks into one step and none into the next: a gap in graphs.
    """
    return (ceil(at_s / every_s) + 0.5) * every_s - at_s

"""One read of the newest sample of every GPU for everybody who looks at the use of GPUs at the same time."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.ports.clock import Clock
from reservation_core.ports.gpu_use import GpuUseNow
from reservation_core.runtime.reading.shared_reading import SharedReading

OLDEST = timedelta(seconds=5)
"""Samples come every 10 seconds: viewers share a read for half of that."""
_MOST_GPUS = 100_000


@dataclass(frozen=True, slots=True)
class FleetUse:
    """The use of each GPU at `read_at`, by node and index."""

    read_at: datetime
    gpus: Mapping[tuple[str, int], GpuUseNow] = field(default_factory=dict)


class UseReader:
    """The use of all GPUs now; a sample counts for the time `lasts`."""

    def __init__(self, uow: UnitOfWorkFactory, clock: Clock, lasts: timedelta) -> None:
        self._uow = uow
        self._clock = clock
        self._lasts = lasts
        self._reading = SharedReading(self._read)
        self._use: FleetUse | None = None

    async def use(self) -> FleetUse:
        """The last reading, no older than `OLDEST`. Raises DatabaseUnavailableError."""
        kept = self._use
        if kept is not None and timedelta(0) <= self._clock.now() - kept.read_at < OLDEST:
            return kept
        return await self._reading()

    async def newest_sample(self) -> datetime | None:
        """When the newest sample of any GPU was taken. Raises DatabaseUnavailableError."""
        found = (await self.use()).gpus.values()
        return max((gpu.sample.at for gpu in found if gpu.sample is not None), default=None)

    async def of_gpu(self, node: str, index: int) -> GpuUseNow | None:
        """The use of one GPU now."""
        async with self._uow() as uow:
            found = await uow.gpu_use.of_now((node, index - 1), 1, self._clock.now(), self._lasts)
        return next((gpu for gpu in found if (gpu.node, gpu.index) == (node, index)), None)

    async def close(self) -> None:
        """Cancel running reads."""
        await self._reading.close()

    async def _read(self) -> FleetUse:
        now = self._clock.now()
        async with self._uow() as uow:
            found = await uow.gpu_use.of_now(None, _MOST_GPUS, now, self._lasts)
        self._use = FleetUse(now, {(gpu.node, gpu.index): gpu for gpu in found})
        return self._use

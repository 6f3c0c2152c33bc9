"""Samples of the use of GPUs, and the GPUs whose use is read."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from reservation_core.domain.gpu_use.samples import GpuSample


class GpuSampler(Protocol):
    """Looks at the GPUs of this machine: by its driver, or in a recording."""

    async def look(self, at: datetime) -> Sequence[GpuSample]:
        """The use of each GPU at `at`; a GPU that does not answer in time has no sample."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class HeldGpu:
    """A GPU of a job or a node, in [start, until); None: since ever, until now."""

    gpu_id: int
    node: str
    index: int
    uuid: str | None
    gpu_type: str
    memory_bytes: int | None
    simulated: bool
    start: datetime | None
    until: datetime | None

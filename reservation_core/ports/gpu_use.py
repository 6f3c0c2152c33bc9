"""Samples of the use of GPUs, and the GPUs whose use is read."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from reservation_core.domain.gpu_use.idleness import WatchedJob
from reservation_core.domain.gpu_use.samples import GpuSample
from reservation_core.domain.model import GpuCondition
from reservation_core.domain.statuses import GpuState, ReservationKind


class GpuSampler(Protocol):
    """Looks at the GPUs of this machine: by its driver, or in a recording."""

    async def look(self, at: datetime) -> Sequence[GpuSample]:
        """The use of each GPU at `at`; a GPU that does not answer in time has no sample."""
        ...

    def begin(self) -> None:
        """Note that this process leads from now on: another leader may have looked before."""
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


@dataclass(frozen=True, slots=True)
class GpuHolder:
    """What holds a GPU now: a job, a booking or a maintenance window."""

    id: str
    kind: ReservationKind
    user_id: int
    user: str
    project: str | None


@dataclass(frozen=True, slots=True)
class NewestSample:
    """What the newest sample of a GPU says; None: it does not say."""

    at: datetime
    utilisation: float | None
    memory_used: int | None
    power_w: float | None
    temperature_c: int | None
    ecc_uncorrected: int | None
    processes: int | None


@dataclass(frozen=True, slots=True)
class GpuUseNow:
    """A GPU with its holder and its newest sample; `sample` is None where no recent one is of this holder.

    `xid` is the last Xid error of the last minutes, whoever had the GPU.
    """

    node: str
    node_available: bool
    index: int
    gpu_type: str
    memory_bytes: int | None
    simulated: bool
    state: GpuState
    holder: GpuHolder | None
    sample: NewestSample | None
    xid: int | None


@dataclass(frozen=True, slots=True)
class HoldingJob:
    """A running job that is no booking's, and the GPUs that it holds. `version` is that of its row."""

    id: str
    version: int
    user: str
    project: str | None
    gpu_ids: tuple[int, ...]
    gpu_types: tuple[str, ...]
    watched: WatchedJob


@dataclass(frozen=True, slots=True)
class LockedGpu:
    """A GPU that is to be quarantined or released. `quarantined_at` is None where SQL alone quarantined it."""

    id: int
    condition: GpuCondition
    quarantined_at: datetime | None


@dataclass(frozen=True, slots=True)
class QuarantinedGpu:
    """A GPU that was just quarantined, and the job that has it, if any."""

    node: str
    index: int
    job: str | None

    def __str__(self) -> str:
        return f"{self.node}/{self.index}"

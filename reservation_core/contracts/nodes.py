"""Nodes and unknown pods over REST."""

from datetime import timedelta
from typing import Annotated

from pydantic import Field

from reservation_core.contracts.base import Prose, Time, Wire
from reservation_core.domain.request_terms import MILLI, Share
from reservation_core.domain.statuses import GpuState


class NodeFence(Wire):
    """An administrator's statement that a node has no power, with an optional reason."""

    reason: Annotated[Prose, Field(min_length=1, max_length=1000)] | None = None


class NodeCordon(Wire):
    """An administrator's order to place nothing new on a node, with an optional reason."""

    reason: Annotated[Prose, Field(min_length=1, max_length=200)] | None = None


class GpuQuarantine(Wire):
    """An administrator's order to give a GPU to nothing new, with an optional reason."""

    reason: Annotated[Prose, Field(min_length=1, max_length=200)] | None = None


class UnknownPodOut(Wire):
    """A pod with our marks that belongs to no reservation.

    The GPUs that it claims are not allocated while it exists; null: it claims none, or has finished.
    """

    name: str
    node: str | None
    gpu_indices: list[int] | None
    detail: str
    first_seen_at: Time
    end_requested_at: Time | None
    end_requested_by: str | None


class Holder(Wire):
    """The holder of a GPU. By the operator's choice (GPU_DEV_HOLDERS), other users' ids and names are null."""

    id: str | None
    user: str | None
    yours: bool


class GpuOut(Wire):
    node: str
    index: int
    uuid: str | None
    gpu_type: str
    memory_bytes: int | None
    state: GpuState
    holder: Holder | None
    free_at: Time | None
    taken_at: Annotated[
        Time | None,
        Field(description="If it is free: when a promised job, a booking or maintenance takes it, within the hour."),
    ] = None
    quarantined_at: Annotated[Time | None, Field(description="Since when nothing new gets it, if by a quarantine.")] = (
        None
    )
    quarantined_by: Annotated[str | None, Field(description="An administrator, or `system` for its errors.")] = None
    quarantine_reason: str | None = None
    slow_since: Annotated[Time | None, Field(description="Since when it throttles or is slower than its siblings.")] = (
        None
    )
    slow_reason: str | None = None


class KeptOut(Wire):
    """What a node keeps for jobs without GPUs, and how much of it no job has now."""

    cpus: float
    cpus_free: float
    memory_bytes: int
    memory_bytes_free: int

    @classmethod
    def of(cls, keeps: Share, free: Share) -> "KeptOut | None":
        """What a node keeps, if it keeps anything."""
        if not (keeps.cpu_milli and keeps.memory_bytes):
            return None
        return cls(
            cpus=keeps.cpu_milli / MILLI,
            cpus_free=(free.cpu_milli or 0) / MILLI,
            memory_bytes=keeps.memory_bytes,
            memory_bytes_free=free.memory_bytes or 0,
        )


class NodeOut(Wire):
    name: str
    ready: bool
    schedulable: bool
    detail: str | None
    gpu_types: list[str]
    gpus: int
    free: Annotated[int, Field(description="How many GPUs nothing has now.")]
    last_seen_at: Time
    labels: dict[str, str]
    zone: str | None = None
    logical_name: str | None = None
    taints: list[str] = Field(default=[])
    fenced_at: Time | None = None
    fenced_by: str | None = None
    cordoned_at: Time | None = None
    cordoned_by: str | None = None
    cordon_reason: str | None = None
    quarantined_gpus: list[int] = Field(
        default=[], description="The indices of quarantined GPUs; `detail` says since when and why."
    )
    gpu_links: Annotated[
        list[list[str]] | None,
        Field(
            description="How its GPUs are connected, by index, as `nvidia-smi topo -m` writes it; null if unknown.",
            examples=[[["X", "NV18"], ["NV18", "X"]]],
        ),
    ] = None
    taken_soon: Annotated[
        int, Field(description="Of the free GPUs, how many a promised job, a booking or maintenance takes in an hour.")
    ] = 0
    cpus: Annotated[float | None, Field(description="CPUs that jobs with GPUs can have; null if unknown.")] = None
    cpus_free: Annotated[float | None, Field(description="Of these, what no job has now.")] = None
    memory_bytes: Annotated[int | None, Field(description="Memory that jobs with GPUs can have; null if unknown.")] = (
        None
    )
    memory_bytes_free: Annotated[int | None, Field(description="Of this, what no job has now.")] = None
    cpu_jobs: Annotated[
        KeptOut | None, Field(description="What it keeps for jobs without GPUs; null if it keeps nothing.")
    ] = None


class UseLevel(Wire):
    """The mean and the maximum in a step."""

    mean: float
    max: float


class UsePointOut(Wire):
    """The use of a GPU in the step that begins at `at`, by so many samples. Null: no sample says."""

    at: Time
    samples: int
    utilisation: Annotated[UseLevel | None, Field(description="The part of the time that it computed, 0 to 1.")]
    memory_bytes: UseLevel | None
    power_w: UseLevel | None
    temperature_c: UseLevel | None
    ecc_uncorrected: Annotated[int | None, Field(description="Uncorrected ECC errors in the GPU's life.")]
    xid: Annotated[int | None, Field(description="The last Xid error in the step.")]
    processes: Annotated[int | None, Field(description="The most processes that computed on it at once.")]


class GpuUseOut(Wire):
    """The use of one GPU. A step without samples has no point: nothing is known of it."""

    node: str
    index: int
    uuid: str | None
    gpu_type: str
    memory_bytes: int | None
    points: list[UsePointOut]


class JobUseOut(Wire):
    """How a job used its GPUs in that time; `memory_peak` is the most on one GPU, in bytes, of `memory_bytes`."""

    gpus: int
    used: Annotated[float, Field(description="How many of the GPUs it used all the time, on average.")]
    memory_peak: int | None
    memory_bytes: int | None
    enough: Annotated[
        int | None,
        Field(description="How many GPUs would have done the same in the same time; null: too few samples say it."),
    ]
    sampled: Annotated[float, Field(description="The part of the time that samples show, 0 to 1.")]


class UseOut(Wire):
    """The use of the GPUs of a job or a node in [start, end). `simulated`: played back from a recording.

    `summary` is null for a node, and where no sample gives a utilisation.
    """

    start: Time
    end: Time
    step: timedelta
    simulated: bool
    gpus: list[GpuUseOut]
    summary: JobUseOut | None = None


class GpuNowOut(Wire):
    """A GPU with its holder and what its newest sample says, taken at `sampled_at`.

    Null: the sample does not say, or there is no recent one since the holder has the GPU; it does not mean idle.
    """

    node: str
    index: int
    gpu_type: str
    memory_bytes: int | None
    state: GpuState
    holder: Holder | None
    simulated: Annotated[bool, Field(description="Whether samples are played back from a recording.")]
    sampled_at: Time | None
    utilisation: Annotated[float | None, Field(description="The part of the time that it computed, 0 to 1.")]
    memory_used_bytes: int | None
    power_w: float | None
    temperature_c: int | None
    ecc_uncorrected: Annotated[int | None, Field(description="Uncorrected ECC errors in the GPU's life.")]
    xid: Annotated[int | None, Field(description="The last Xid error of the last minutes.")]
    processes: Annotated[int | None, Field(description="Processes that compute on it.")]

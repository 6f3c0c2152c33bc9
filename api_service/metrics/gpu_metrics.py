"""Metrics of each GPU and of the live jobs on them.

The text is written here: for each line prometheus_client needs ten times as long, and there are several for each GPU.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_address

from reservation_core.domain.gpu_use.samples import sample_lasts
from reservation_core.domain.statuses import ReservationKind
from reservation_core.ports.gpu_use import GpuUseNow
from reservation_core.runtime.settings.components import ApiSettings, Holders

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})

_Lines = Iterator[tuple[str, float | None]]


@dataclass(frozen=True, slots=True)
class GpuSeries:
    """Which GPUs have metrics of their own, and how old a sample may be.

    Without `names_jobs` the labels `job`, `user` and `project` are empty.
    """

    gpus: int = 5000
    names_jobs: bool = True
    samples_last: timedelta = timedelta(minutes=1)

    @classmethod
    def of(cls, settings: ApiSettings) -> "GpuSeries":
        """Jobs are named on this machine alone, or at a port of its own where everybody may see holders anyway.

        GPUs have no lines at an address for everybody, unless the settings say how many: it asks for no credential.
        """
        at, everyone = settings.metrics_listen, settings.holders is Holders.EVERYONE
        if at is None:
            names_jobs = everyone and not settings.trusted_proxies and _is_loopback(settings.listen)
        else:
            names_jobs = everyone or _is_loopback(at)
        asked = "metrics_gpus" in settings.model_fields_set or at is not None or _is_loopback(settings.listen)
        return cls(settings.metrics_gpus if asked else 0, names_jobs, sample_lasts(settings.sample_every_s))


async def gpu_exposition(gpus: Sequence[GpuUseNow], series: GpuSeries, left_out: int) -> bytes:
    """The metrics of these GPUs as text for Prometheus; other tasks go on between two metrics."""
    shown = [_Shown.of(gpu, series.names_jobs) for gpu in gpus]
    families: list[tuple[str, str, Callable[[Sequence[_Shown]], _Lines]]] = [
        *((name, meaning, _of_each(value)) for name, meaning, value in _VALUES),
        ("gpu_dev_job_gpus", "GPUs that live jobs hold, by job.", _job_gpus),
        ("gpu_dev_node_available", "Whether the node takes new work.", _nodes_available),
        ("gpu_dev_node_simulated", "Nodes whose GPUs are simulated, with samples of a recording.", _nodes_simulated),
        (
            "gpu_dev_gpu_series_left_out",
            "GPUs that are not shown one by one: set or raise GPU_DEV_METRICS_GPUS.",
            lambda _: iter([("", left_out)]),
        ),
    ]
    parts = []
    for name, meaning, lines in families:
        parts.append(f"# HELP {name} {meaning}\n# TYPE {name} gauge\n")
        parts += [f"{name}{labels} {value}\n" for labels, value in lines(shown) if value is not None]
        await asyncio.sleep(0)
    return "".join(parts).encode()


@dataclass(frozen=True, slots=True)
class _Shown:
    """A GPU with its labels as text: of the place alone, and with the job that holds it."""

    gpu: GpuUseNow
    place: str
    job: str | None
    held: str

    @classmethod
    def of(cls, gpu: GpuUseNow, names_jobs: bool) -> "_Shown":
        place = f'node="{_escaped(gpu.node)}",gpu="{gpu.index}"'
        job, held = None, 'job="",user="",project=""'
        holder = gpu.holder
        if names_jobs and holder is not None and holder.kind is ReservationKind.JOB:
            held = f'job="{holder.id}",user="{_escaped(holder.user)}",project="{_escaped(holder.project or "")}"'
            job = f'{held},gpu_type="{_escaped(gpu.gpu_type)}"'
        return cls(gpu, place, job, held)


@dataclass(frozen=True, slots=True)
class _Value:
    """A value of each GPU, and which labels it has besides the GPU's place."""

    read: Callable[[GpuUseNow], float | None]
    by_job: bool = False
    by_state: bool = False


def _sampled(name: str) -> Callable[[GpuUseNow], float | None]:
    def read(gpu: GpuUseNow) -> float | None:
        value: float | None = None if gpu.sample is None else getattr(gpu.sample, name)
        return value

    return read


_VALUES = (
    (
        "gpu_dev_gpu_utilization_ratio",
        "The part of the time that the GPU computed, 0 to 1, by its newest sample; no line without one.",
        _Value(_sampled("utilisation"), by_job=True),
    ),
    (
        "gpu_dev_gpu_memory_used_bytes",
        "Memory of the GPU that is in use.",
        _Value(_sampled("memory_used"), by_job=True),
    ),
    ("gpu_dev_gpu_power_watts", "Power that the GPU draws.", _Value(_sampled("power_w"), by_job=True)),
    ("gpu_dev_gpu_memory_bytes", "Memory of the GPU.", _Value(lambda gpu: gpu.memory_bytes)),
    ("gpu_dev_gpu_temperature_celsius", "Temperature of the GPU.", _Value(_sampled("temperature_c"))),
    ("gpu_dev_gpu_processes", "Processes that compute on the GPU.", _Value(_sampled("processes"))),
    (
        "gpu_dev_gpu_ecc_uncorrected_errors",
        "Uncorrected ECC errors in the GPU's life.",
        _Value(_sampled("ecc_uncorrected")),
    ),
    (
        "gpu_dev_gpu_xid",
        "The GPU's last Xid error of the last minutes; 0 without one.",
        _Value(lambda gpu: gpu.xid or (None if gpu.sample is None else 0)),
    ),
    ("gpu_dev_gpu_state", "The state of the GPU: 1.", _Value(lambda _: 1, by_state=True)),
)


def _of_each(value: _Value) -> Callable[[Sequence[_Shown]], _Lines]:
    def lines(shown: Sequence[_Shown]) -> _Lines:
        for line in shown:
            labels = line.place
            if value.by_job:
                labels = f"{labels},{line.held}"
            if value.by_state:
                labels = f'{labels},gpu_type="{_escaped(line.gpu.gpu_type)}",state="{line.gpu.state}"'
            yield f"{{{labels}}}", value.read(line.gpu)

    return lines


def _job_gpus(shown: Sequence[_Shown]) -> _Lines:
    for labels, count in Counter(line.job for line in shown if line.job is not None).items():
        yield f"{{{labels}}}", count


def _nodes_available(shown: Sequence[_Shown]) -> _Lines:
    for node, available in {line.gpu.node: line.gpu.node_available for line in shown}.items():
        yield f'{{node="{_escaped(node)}"}}', int(available)


def _nodes_simulated(shown: Sequence[_Shown]) -> _Lines:
    for node in dict.fromkeys(line.gpu.node for line in shown if line.gpu.simulated):
        yield f'{{node="{_escaped(node)}"}}', 1


def _escaped(text: str) -> str:
    return text.translate(_ESCAPES)


def _is_loopback(listen: str) -> bool:
    host = listen.rpartition(":")[0].strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

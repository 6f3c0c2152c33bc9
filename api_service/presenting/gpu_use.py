"""The use of GPUs as a body of REST."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from api_service.access.sight import Sight
from api_service.requests.csv_answers import table
from reservation_core.contracts.nodes import GpuNowOut, GpuUseOut, Holder, JobUseOut, UseLevel, UseOut, UsePointOut
from reservation_core.domain.gpu_use.job_use import JobUse
from reservation_core.domain.gpu_use.roll_ups import Level, UsePoint
from reservation_core.domain.time_words import rfc3339
from reservation_core.ports.gpu_use import GpuUseNow, HeldGpu


def use(
    found: Sequence[tuple[HeldGpu, Sequence[UsePoint]]],
    start: datetime,
    end: datetime,
    step: timedelta,
    summary: JobUse | None = None,
) -> UseOut:
    """GPUs with their points, and of a job what they say together."""
    return UseOut(
        start=start,
        end=end,
        step=step,
        simulated=any(gpu.simulated for gpu, _ in found),
        gpus=[
            GpuUseOut(
                node=gpu.node,
                index=gpu.index,
                uuid=gpu.uuid,
                gpu_type=gpu.gpu_type,
                memory_bytes=gpu.memory_bytes,
                points=[_point(point) for point in points],
            )
            for gpu, points in found
        ],
        summary=None if summary is None else _summary(summary),
    )


def use_now(gpu: GpuUseNow, sight: Sight) -> GpuNowOut:
    """A GPU and its use now, with its holder if the caller may see that."""
    holder, sample = gpu.holder, gpu.sample
    seen = holder is not None and sight.sees(holder.user_id)
    return GpuNowOut(
        node=gpu.node,
        index=gpu.index,
        gpu_type=gpu.gpu_type,
        memory_bytes=gpu.memory_bytes,
        state=gpu.state,
        holder=None
        if holder is None
        else Holder(
            id=holder.id if seen else None,
            user=holder.user if seen else None,
            yours=holder.user_id == sight.caller.user_id,
        ),
        simulated=gpu.simulated,
        sampled_at=sample and sample.at,
        utilisation=sample and sample.utilisation,
        memory_used_bytes=sample and sample.memory_used,
        power_w=None if sample is None or sample.power_w is None else round(sample.power_w, 1),
        temperature_c=sample and sample.temperature_c,
        ecc_uncorrected=sample and sample.ecc_uncorrected,
        xid=gpu.xid,
        processes=sample and sample.processes,
    )


def use_csv(found: UseOut) -> str:
    """A line for each GPU and step that has samples; what they do not say is empty."""
    levels = ("utilisation", "memory_bytes", "power_w", "temperature_c")
    counts = ("ecc_uncorrected", "xid", "processes")
    header = [f"{level}_{which}" for level in levels for which in ("mean", "max")]
    lines = (
        [
            *(gpu.node, gpu.index, gpu.uuid, gpu.gpu_type, rfc3339(point.at), point.samples),
            *(value for level in levels for value in _mean_and_max(getattr(point, level))),
            *(getattr(point, count) for count in counts),
        ]
        for gpu in found.gpus
        for point in gpu.points
    )
    return table(["node", "gpu", "uuid", "gpu_type", "at", "samples", *header, *counts], lines)


def _mean_and_max(level: UseLevel | None) -> tuple[float | None, float | None]:
    return (None, None) if level is None else (_plain(level.mean), _plain(level.max))


def _plain(value: float) -> float:
    return int(value) if value.is_integer() else value


def _summary(summary: JobUse) -> JobUseOut:
    return JobUseOut(
        gpus=summary.gpus,
        used=round(summary.used, 4),
        memory_peak=summary.memory_peak,
        memory_bytes=summary.memory_bytes,
        enough=summary.enough,
        sampled=round(summary.sampled, 4),
    )


def _point(point: UsePoint) -> UsePointOut:
    return UsePointOut(
        at=point.at,
        samples=point.samples,
        utilisation=_level(point.utilisation, 4),
        memory_bytes=_level(point.memory, 0),
        power_w=_level(point.power, 1),
        temperature_c=_level(point.temperature, 1),
        ecc_uncorrected=point.ecc_uncorrected,
        xid=point.xid,
        processes=point.processes,
    )


def _level(level: Level | None, digits: int) -> UseLevel | None:
    return None if level is None else UseLevel(mean=round(level.mean, digits), max=round(level.most, digits))

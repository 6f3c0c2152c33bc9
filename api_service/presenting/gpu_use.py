"""The use of GPUs as a body of REST."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from reservation_core.contracts.nodes import GpuUseOut, UseLevel, UseOut, UsePointOut
from reservation_core.domain.gpu_use.roll_ups import Level, UsePoint
from reservation_core.ports.gpu_use import HeldGpu


def use(found: Sequence[tuple[HeldGpu, Sequence[UsePoint]]], start: datetime, end: datetime, step: timedelta) -> UseOut:
    """GPUs with their points."""
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

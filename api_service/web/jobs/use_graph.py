"""How a job used its GPUs, as graphs: areas in a square of 100, one for each run of steps that have samples."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from starlette.responses import Response

from api_service.web.visit import Visit
from reservation_core.contracts.jobs import Job
from reservation_core.contracts.nodes import GpuUseOut, JobUseOut, UseLevel, UseOut, UsePointOut
from reservation_core.domain.gpu_use.figures import error_figures, memory_figure, use_words
from reservation_core.domain.time_words import rfc3339

MOST_GPUS = 32


@dataclass(frozen=True, slots=True)
class UseRow:
    """One GPU: polygons of its mean utilisation, and figures in words; all empty where there are no samples."""

    name: str
    gpu_type: str
    areas: Sequence[str]
    mean: str
    most: str
    memory: str
    power: str
    errors: str


@dataclass(frozen=True, slots=True)
class UseGraphs:
    """The first GPUs of a job, at most `MOST_GPUS`; `left_out` counts the others. `words`: what it used of all."""

    rows: Sequence[UseRow]
    left_out: int
    length: timedelta
    step: timedelta
    simulated: bool
    words: str | None = None


async def read_use(visit: Visit, job: Job) -> UseGraphs:
    """The use of a job's GPUs while it had them."""
    return graphs_of(await visit.rest.get(UseOut, f"/v1/jobs/{job.id}/metrics"))


async def read_node_use(visit: Visit, node: str, last: timedelta) -> UseGraphs:
    """The use of a node's GPUs in the time until now."""
    return graphs_of(await visit.rest.get(UseOut, f"/v1/nodes/{visit.encoded(node)}/metrics", _since(visit, last)))


async def use_file(visit: Visit, path: str, name: str, last: timedelta | None = None) -> Response:
    """The same as CSV, of a job or a node by its address in REST."""
    query = {"format": "csv"} | ({} if last is None else _since(visit, last))
    answer = await visit.rest.send("GET", f"{path}/metrics", query=query)
    headers = {
        "Content-Disposition": f'attachment; filename="use-{name}.csv"',
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
    }
    return Response(answer.body, media_type="text/csv", headers=headers)


def _since(visit: Visit, last: timedelta) -> dict[str, str]:
    return {"from": rfc3339(visit.now - last)}


def graphs_of(found: UseOut) -> UseGraphs:
    """An answer of REST as graphs."""
    return UseGraphs(
        rows=[_row(found, gpu) for gpu in found.gpus[:MOST_GPUS]],
        left_out=max(0, len(found.gpus) - MOST_GPUS),
        length=found.end - found.start,
        step=found.step,
        simulated=found.simulated,
        words=None if found.summary is None else _words(found.summary),
    )


def _words(use: JobUseOut) -> str:
    return use_words(use.gpus, use.used, (use.memory_peak, use.memory_bytes), use.enough, use.sampled)


def _row(found: UseOut, gpu: GpuUseOut) -> UseRow:
    utilisation = _over_time(gpu, lambda point: point.utilisation)
    memory, power = _over_time(gpu, lambda point: point.memory_bytes), _over_time(gpu, lambda point: point.power_w)
    errors = error_figures((point.xid for point in gpu.points), (point.ecc_uncorrected for point in gpu.points))
    return UseRow(
        name=f"{gpu.node}/{gpu.index}",
        gpu_type=gpu.gpu_type,
        areas=[*_areas(found, gpu.points)],
        mean="" if utilisation is None else f"{utilisation.mean:.0%}",
        most="" if utilisation is None else f"{utilisation.max:.0%}",
        memory="" if memory is None else memory_figure(memory.max, gpu.memory_bytes),
        power="" if power is None else f"{power.mean:.0f} W",
        errors=", ".join(errors),
    )


def _over_time(gpu: GpuUseOut, level: Callable[[UsePointOut], UseLevel | None]) -> UseLevel | None:
    known = [(point.samples, of_step) for point in gpu.points if (of_step := level(point)) is not None]
    if not known:
        return None
    mean = sum(samples * of_step.mean for samples, of_step in known) / sum(samples for samples, _ in known)
    return UseLevel(mean=mean, max=max(of_step.max for _, of_step in known))


def _areas(found: UseOut, points: Iterable[UsePointOut]) -> Iterator[str]:
    """A polygon for each run of steps; a step without samples is a gap."""
    whole = max(found.end - found.start, timedelta(microseconds=1))
    run: list[tuple[float, float]] = []
    last = None
    for point in points:
        if point.utilisation is None:
            continue
        if last is not None and point.at - last > found.step:
            yield _polygon(run)
            run = []
        last = point.at
        left, right = ((at - found.start) / whole for at in (point.at, point.at + found.step))
        height = round(100 - 100 * point.utilisation.mean, 1)
        run += [(_across(left), height), (_across(right), height)]
    if run:
        yield _polygon(run)


def _across(part: float) -> float:
    return round(100 * min(1.0, max(0.0, part)), 2)


def _polygon(run: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in [(run[0][0], 100.0), *run, (run[-1][0], 100.0)])

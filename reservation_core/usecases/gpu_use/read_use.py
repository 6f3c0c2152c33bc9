"""Read the use of GPUs: of a job while it had them, or of a node."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.gpu_use.roll_ups import UsePoint, roll_up
from reservation_core.domain.gpu_use.samples import MINUTES_KEPT
from reservation_core.domain.gpu_use.spans import spans_of
from reservation_core.ports.gpu_use import HeldGpu
from reservation_core.ports.people.identities import Principal
from reservation_core.usecases.jobs.visible_jobs import view_visible
from reservation_core.usecases.nodes.existing_node import view_node


async def gpus_of_job(uow: UnitOfWork, principal: Principal, job_id: str) -> tuple[int, list[HeldGpu]]:
    """How many GPUs a job asked for, and those that it has or had, once for each time. Raises NotFoundError."""
    job = (await view_visible(uow, principal, job_id)).reservation
    return job.gpus * job.nodes, await uow.gpu_use.of_job(job_id)


def held_within(held: Sequence[HeldGpu], start: datetime, end: datetime) -> timedelta:
    """For how long GPUs were held between two times, summed over GPUs."""
    spans = ((max(start, gpu.start or start), min(end, gpu.until or end)) for gpu in held)
    return sum((until - begin for begin, until in spans if until > begin), timedelta(0))


async def gpus_of_node(uow: UnitOfWork, node: str) -> list[HeldGpu]:
    """The GPUs of a node. Raises NotFoundError."""
    await view_node(uow, node)
    return await uow.gpu_use.of_node(node)


async def earliest_use(uow: UnitOfWork, held: Sequence[HeldGpu], start: datetime, now: datetime) -> datetime:
    """`start`, or a later time before which there is nothing of these GPUs; of old times only hours are left."""
    oldest = now - MINUTES_KEPT
    if start >= oldest:
        return start
    hour = await uow.gpu_use.oldest_hour({gpu.gpu_id for gpu in held})
    return max(start, oldest if hour is None else min(hour, oldest))


async def read_points(
    uow: UnitOfWork, held: Sequence[HeldGpu], start: datetime, end: datetime, step: timedelta
) -> list[tuple[HeldGpu, list[UsePoint]]]:
    """Each GPU once with its points in [start, end), as far as it was held then."""
    rolled = await uow.gpu_use.rolled()
    spans = [
        (gpu.gpu_id, span)
        for gpu in held
        for span in spans_of(max(start, gpu.start or start), min(end, gpu.until or end), step, rolled)
    ]
    found = await uow.gpu_use.points(spans, step) if spans else {}
    gpus = {gpu.gpu_id: gpu for gpu in reversed(held)}
    return [(gpu, roll_up(found.get(gpu_id, ()), step)) for gpu_id, gpu in reversed(gpus.items())]

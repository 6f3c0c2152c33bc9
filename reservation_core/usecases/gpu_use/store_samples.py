"""Store samples of the use of GPUs, in batches."""

from collections.abc import Sequence
from operator import itemgetter

from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.domain.calendar import step_begin
from reservation_core.domain.gpu_use.samples import GpuSample, timely_times
from reservation_core.domain.gpu_use.spans import Resolution


async def store_samples(uow_factory: UnitOfWorkFactory, samples: Sequence[GpuSample]) -> list[GpuSample]:
    """Store a batch in one transaction, and return those of known GPUs, in their order.

    A sample that is sent again is kept once. Samples of GPUs that the inventory does not have (on their node), and of a
    time that is over or to come, are left out; and all, where the clock went back, until `keep_use` has removed those
    of before, which would stay in place of these. Where a sample comes after its minute was rolled up, the minute is
    rolled up again.
    """
    if not samples:
        return []
    async with uow_factory() as uow:
        now = await uow.now()
        first, last = timely_times(now)
        timely = [sample for sample in samples if first <= sample.at <= last]
        gpu_ids = await uow.gpu_use.gpu_ids({(sample.uuid, sample.node) for sample in timely})
        places = ((sample, gpu_ids.get((sample.uuid, sample.node))) for sample in timely)
        known = [(gpu_id, sample) for sample, gpu_id in places if gpu_id is not None]
        stored = [sample for _, sample in known]
        if not known:
            return stored
        rolled = await uow.gpu_use.lock()
        if rolled[Resolution.MINUTES] > await uow.now():  # the lock may have been waited for
            return []
        known.sort(key=itemgetter(0))  # as in the index, whose pages are then written one after another
        await uow.gpu_use.add(known)
        await uow.gpu_health.note_errors(known)
        earliest = min(sample.at for _, sample in known)
        back = {resolution: min(until, step_begin(earliest, resolution.step)) for resolution, until in rolled.items()}
        if back != rolled:
            await uow.gpu_use.move(back)
    return stored

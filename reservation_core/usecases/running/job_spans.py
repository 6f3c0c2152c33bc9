"""What the processor does for a job until it runs, as spans of the job's trace; nothing for jobs without one."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.model import AllocatedGpu, Reservation
from reservation_core.ports.traces import Span, Traces


@dataclass(frozen=True, slots=True)
class CreationSpans:
    """Spans of jobs whose pods are made. A job in `waits_from` has waited from then, and not from its submission."""

    traces: Traces | None
    waits_from: Mapping[str, datetime]

    def add(
        self,
        job: Reservation,
        gpus: Sequence[AllocatedGpu],
        begun: datetime,
        ended: datetime,
        error: str | None = None,
    ) -> None:
        """Add the wait for GPUs that this attempt has ended, and the creation of its pods on them."""
        self.add_wait(job, gpus)
        if self.traces is not None and job.trace is not None:
            attempt = {"gpu_dev.attempt": job.attempt}
            self.traces.add(Span("create pods", job.id, job.trace, begun, ended, attempt, error))

    def add_wait(self, job: Reservation, gpus: Sequence[AllocatedGpu]) -> None:
        """Add the wait alone, of an attempt that ended before its pods were created."""
        if self.traces is None or job.trace is None:
            return
        waits_from = job.created_at if job.attempt == 1 else self.waits_from.get(job.id)
        if waits_from is not None and gpus:
            placed: dict[str, str | int] = {
                "gpu_dev.attempt": job.attempt,
                "gpu_dev.nodes": ",".join(sorted({gpu.node for gpu in gpus})),
                "gpu_dev.gpus": len(gpus),
            }
            self.traces.add(Span("wait for GPUs", job.id, job.trace, waits_from, gpus[0].starts_at, placed))


async def read_creations(uow: UnitOfWork, traces: Traces | None, jobs: Iterable[Reservation]) -> CreationSpans:
    """Read what the spans of these jobs need: where traces are off, and for first attempts, nothing."""
    again = [job.id for job in jobs if traces is not None and job.trace is not None and job.attempt > 1]
    return CreationSpans(traces, await uow.reservations.last_released(again) if again else {})


def add_starts(traces: Traces | None, jobs: Iterable[tuple[Reservation, datetime]]) -> None:
    """Add the time from the creation of pods, or what is known nearest to it, until each of these jobs ran."""
    for job, given_at in jobs:
        if traces is not None and job.trace is not None and job.started_at is not None:
            attempt = {"gpu_dev.attempt": job.attempt}
            traces.add(Span("start pods", job.id, job.trace, given_at, job.started_at, attempt))

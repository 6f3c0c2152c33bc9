"""The beginning of a job's trace, when it is submitted. What follows is in `usecases.running.job_spans`."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from reservation_core.domain.model import Reservation
from reservation_core.domain.statuses import JobStatus
from reservation_core.ports.jobs.reservations import NewReservation
from reservation_core.ports.traces import Span, Traces


def begin_trace(traces: Traces | None, new: NewReservation) -> NewReservation:
    """The job that is to be stored, with a trace where traces are on."""
    if traces is None:
        return new
    return replace(new, reservation=replace(new.reservation, trace=traces.begin()))


def add_submission(traces: Traces | None, new: NewReservation, now: datetime) -> None:
    """Add the span of a job that was stored, which the spans of the processor lie below."""
    job = new.reservation
    if traces is None or job.trace is None:
        return
    asked: dict[str, str | int] = {"gpu_dev.user": job.user, "gpu_dev.gpus": job.gpus * job.nodes}
    if job.gpu_type is not None:
        asked["gpu_dev.gpu_type"] = job.gpu_type
    if job.project is not None:
        asked["gpu_dev.project"] = job.project
    traces.add_root(Span("submit job", job.id, job.trace, job.created_at, now, asked))


def add_cancelled_waits(traces: Traces | None, jobs: Iterable[Reservation], now: datetime) -> None:
    """Add the waits of jobs that were just cancelled and never got GPUs, once that is committed."""
    for job in jobs:
        waited = job.status is JobStatus.CANCELLED and job.attempt == 0 and job.array is None
        if traces is not None and job.trace is not None and waited:
            attempt = {"gpu_dev.attempt": 1}
            traces.add(Span("wait for GPUs", job.id, job.trace, job.created_at, now, attempt, "The job was cancelled."))

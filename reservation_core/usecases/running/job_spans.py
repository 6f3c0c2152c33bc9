"""What the processor does for a job until it runs, as spans of the job's trace; nothing for jobs without one."""

from collections.abc import Iterable, Sequence
from datetime import datetime

import structlog

from reservation_core.domain.model import AllocatedGpu, Reservation
from reservation_core.ports.traces import Span, Traces, trace_id_of


def name_trace_in_logs(job: Reservation) -> None:
    """Put the id of a job's trace into all further log lines of this task."""
    if job.trace is not None:
        structlog.contextvars.bind_contextvars(trace_id=trace_id_of(job.trace))


def add_creation(
    traces: Traces | None,
    job: Reservation,
    gpus: Sequence[AllocatedGpu],
    begun: datetime,
    ended: datetime,
    error: str | None = None,
) -> None:
    """Add the wait for GPUs, of a first attempt, and the creation of the pods on them."""
    if traces is None or job.trace is None:
        return
    attempt: dict[str, str | int] = {"gpu_dev.attempt": job.attempt}
    if job.attempt == 1 and gpus:
        placed: dict[str, str | int] = {
            **attempt,
            "gpu_dev.nodes": ",".join(sorted({gpu.node for gpu in gpus})),
            "gpu_dev.gpus": len(gpus),
        }
        traces.add(Span("wait for GPUs", job.id, job.trace, job.created_at, gpus[0].starts_at, placed))
    traces.add(Span("create pods", job.id, job.trace, begun, ended, attempt, error))


def add_starts(traces: Traces | None, jobs: Iterable[tuple[Reservation, datetime]]) -> None:
    """Add the time from the creation of pods, or what is known nearest to it, until each of these jobs ran."""
    for job, given_at in jobs:
        if traces is not None and job.trace is not None and job.started_at is not None:
            attempt = {"gpu_dev.attempt": job.attempt}
            traces.add(Span("start pods", job.id, job.trace, given_at, job.started_at, attempt))

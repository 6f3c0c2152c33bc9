"""The start of a waiting job that pages show and sort by."""

from datetime import datetime

from reservation_core.contracts.jobs import Job, QueueEntry
from reservation_core.domain.status_words import promise_stands


def expected_start(job: Job | QueueEntry) -> datetime | None:
    """When it starts in half of all cases; without a prediction, when its GPUs are free at the latest."""
    return job.estimated_start_at if job.estimated_start is None else job.estimated_start.p50


def keeps_promise(job: Job | QueueEntry) -> bool:
    """Whether a waiting job will start by its promised start."""
    return promise_stands(job.promised_start_at, job.estimated_start_at)

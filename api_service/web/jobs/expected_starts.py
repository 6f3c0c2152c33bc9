"""The start of a waiting job that pages show and sort by."""

from datetime import datetime

from reservation_core.contracts.jobs import Job, QueueEntry


def expected_start(job: Job | QueueEntry) -> datetime | None:
    """When it starts in half of all cases; without a prediction, when its GPUs are free at the latest."""
    return job.estimated_start_at if job.estimated_start is None else job.estimated_start.p50

"""The start of a waiting job that pages show and sort by."""

from datetime import datetime

from reservation_core.contracts.jobs import Job, QueueEntry
from reservation_core.domain.model import ReasonCode
from reservation_core.domain.status_words import promise_stands

_IMPOSSIBLE = (ReasonCode.LARGER_THAN_ANY_NODE, ReasonCode.NOT_ENOUGH_NODES)


def expected_start(job: Job | QueueEntry) -> datetime | None:
    """When it starts in half of all cases; without a prediction, when its GPUs are free at the latest."""
    return job.estimated_start_at if job.estimated_start is None else job.estimated_start.p50


def cannot_start(code: str) -> bool:
    """Whether a job with this reason can't start on the nodes that are here: it waits until others join."""
    return code in _IMPOSSIBLE


def keeps_promise(job: Job | QueueEntry) -> bool:
    """Whether a waiting job will start by its promised start."""
    return promise_stands(job.promised_start_at, job.estimated_start_at)

"""Promised starts that are missed: from when on one is, and what the notification says of it."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from reservation_core.domain.changes import DecidedChange
from reservation_core.domain.model import JobStatus

SLACK = timedelta(seconds=2)
"""GPUs that are given until so long after the promise are given in time: pods take a moment to go."""

PODS_SLACK = timedelta(seconds=5)
"""Pods that begin until so long after the promise, on GPUs that were given in time, begin in time."""

GIVEN_LATE = "Nothing planned when its time came, so it got its GPUs late."
RAN_LATE = "It had its GPUs in time, but its pods began to run late."
NEVER_STARTED = "It had not started when it stopped waiting."

_BEFORE_RUNNING = (JobStatus.QUEUED, JobStatus.STARTING)


@dataclass(frozen=True, slots=True)
class WaitEnd:
    """When a job stopped waiting for its start, and whether it `started` then."""

    id: str
    at: datetime
    started: bool


def wait_end(change: DecidedChange) -> WaitEnd | None:
    """The end of a job's wait, if a change is one: it runs since, or is over without having run."""
    before, after = change.before, change.after
    if before.status not in _BEFORE_RUNNING or after.status in _BEFORE_RUNNING:
        return None
    return WaitEnd(after.id, after.started_at or change.at, after.started_at is not None)

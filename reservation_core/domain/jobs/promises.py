"""Missed promised starts: when a start is late, and what the notification says."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from reservation_core.domain.changes import DecidedChange
from reservation_core.domain.statuses import JobStatus

SLACK = timedelta(seconds=2)
"""GPUs given this long after the promised start are in time: pods take a moment to go."""

PODS_SLACK = timedelta(seconds=5)
"""Pods that begin this long after the promised start, on GPUs given in time, are in time."""

ALLOCATED_LATE = "No planner ran at its promised start, so it got its GPUs late."
RAN_LATE = "It had its GPUs in time, but its pods began to run late."
NEVER_STARTED = "It had not started when it stopped waiting."

_BEFORE_RUNNING = (JobStatus.QUEUED, JobStatus.STARTING)


@dataclass(frozen=True, slots=True)
class WaitEnd:
    """When a job stopped waiting for its start, and whether it had `started` then."""

    id: str
    at: datetime
    started: bool


def end_of_wait(change: DecidedChange) -> WaitEnd | None:
    """The end of a job's wait, if the change is one: the job runs, or ended without running."""
    before, after = change.before, change.after
    if before.status not in _BEFORE_RUNNING or after.status in _BEFORE_RUNNING:
        return None
    return WaitEnd(after.id, after.started_at or change.at, after.started_at is not None)

"""Jobs that wait for each other, as they are drawn."""

from dataclasses import dataclass

from reservation_core.domain.jobs.asked_dependencies import DependencyWhen
from reservation_core.domain.statuses import JobStatus


@dataclass(frozen=True, slots=True)
class DependencyLink:
    """A job that is waited for, the job that waits for it, and how far the first has to be."""

    needed: str
    waiting: str
    when: DependencyWhen


@dataclass(frozen=True, slots=True)
class LinkedJob:
    """A job that waits for others or is waited for."""

    id: str
    name: str | None
    status: JobStatus

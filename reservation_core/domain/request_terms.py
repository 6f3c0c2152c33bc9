"""Terms of requests for GPUs: the retries that a job asks for, and in what another request differs."""

from dataclasses import dataclass
from enum import StrEnum

MOST_RETRIES = 100
"""So often a job may ask to be retried."""
REQUEUES = 10
"""So often a job is requeued whose owner does not say how often."""


class RetryCause(StrEnum):
    """Ends that a job may be retried after: its command failed, its node was lost, or its GPUs were taken away."""

    FAILED = "failed"
    NODE_LOST = "node_lost"
    PREEMPTED = "preempted"


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a job is retried at most, and after which ends."""

    max: int
    on: frozenset[RetryCause]


class RequestChange(StrEnum):
    """In what a request differs that would start sooner: it lasts less long, has fewer GPUs, or another type."""

    SHORTER = "shorter"
    FEWER = "fewer"
    TYPE = "type"

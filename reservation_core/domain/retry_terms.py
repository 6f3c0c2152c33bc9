"""What a job may ask for about retries. Without other parts of the domain: the model of a job has it."""

from dataclasses import dataclass
from enum import StrEnum

MOST_RETRIES = 100
"""So often a job may ask to be retried."""


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

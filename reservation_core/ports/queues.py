"""The queues, and what lies in them."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any


class QueueName(StrEnum):
    """Every PGMQ queue there is; each has a dead-letter queue `<name>_dlq`."""

    GPU_JOBS = "gpu_jobs"
    POD_OPERATIONS = "pod_operations"
    NOTIFICATIONS = "notifications"

    @property
    def dead_letters(self) -> str:
        """The name of the queue that takes what could not be handled."""
        return f"{self.value}_dlq"


class NotYetError(Exception):
    """What a message asks for can't be done before `after` has passed; nobody is to blame."""

    def __init__(self, why: str, after: timedelta) -> None:
        super().__init__(why)
        self.after = after


class TryAgainError(Exception):
    """What a message asks for failed for a known reason; it counts as a try, and the next is `after` so long."""

    def __init__(self, why: str, after: timedelta) -> None:
        super().__init__(why)
        self.after = after


class HopelessError(Exception):
    """No further try will do what a message asks for: it belongs to the dead letters at once."""


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    """One delivery. `read_count` is 1 at the first; `body` is whatever JSON was sent, not yet checked."""

    id: int
    read_count: int
    enqueued_at: datetime
    body: Any


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that could not be handled, with its last error."""

    id: int
    queue: str
    enqueued_at: datetime
    body: Any
    error: str
    read_count: int
    original_id: int | None


@dataclass(frozen=True, slots=True)
class QueueMetrics:
    """Depth and age of one queue."""

    queue: str
    depth: int
    oldest_age_s: float | None

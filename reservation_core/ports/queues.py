"""The queues and their messages."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any


class QueueName(StrEnum):
    """Every PGMQ queue; each has a dead-letter queue `<name>_dlq`."""

    GPU_JOBS = "gpu_jobs"
    POD_OPERATIONS = "pod_operations"
    NOTIFICATIONS = "notifications"

    @property
    def dead_letters(self) -> str:
        """The name of its dead-letter queue."""
        return f"{self.value}_dlq"


class MessageNotDueError(Exception):
    """A message can't be handled before `after` has passed; that is no failure."""

    def __init__(self, why: str, after: timedelta) -> None:
        super().__init__(why)
        self.after = after


class RetryLaterError(Exception):
    """Handling a message failed for a known reason; it counts as a try, and the next is after `after`."""

    def __init__(self, why: str, after: timedelta) -> None:
        super().__init__(why)
        self.after = after


class UnrecoverableMessageError(Exception):
    """No further try can handle the message: it becomes a dead letter at once."""


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    """One delivery. `read_count` is 1 at the first; `body` is the JSON that was sent, not yet validated."""

    id: int
    read_count: int
    enqueued_at: datetime
    body: Any


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that failed permanently, with its last error."""

    id: int
    queue: str
    enqueued_at: datetime
    body: Any
    error: str
    read_count: int
    original_id: int | None


@dataclass(frozen=True, slots=True)
class QueueMetrics:
    """The length of a queue, and the age of its oldest message."""

    queue: str
    depth: int
    oldest_age_s: float | None

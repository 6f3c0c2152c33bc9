"""The queues, and what lies in them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Protocol


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


class Queue(Protocol):
    """PGMQ inside the transaction of the unit of work it hangs on."""

    async def send(self, queue: QueueName, bodies: Sequence[dict[str, Any]]) -> None:
        """Send all in one statement."""
        ...

    async def read(self, queue: QueueName, *, visibility: timedelta, limit: int) -> list[QueuedMessage]:
        """Take up to `limit` visible messages and hide them for `visibility`."""
        ...

    async def delete(self, queue: QueueName, ids: Sequence[int]) -> None:
        """Forget handled messages; unknown ids are nothing."""
        ...

    async def postpone(self, queue: QueueName, ids: Sequence[int], by: timedelta) -> None:
        """Make messages visible again only after `by`."""
        ...

    async def unread(self, queue: QueueName, ids: Sequence[int]) -> None:
        """Count one delivery of each less: what happened was nobody's fault. They stay hidden as they were."""
        ...

    async def bury(self, queue: QueueName, message: QueuedMessage, error: str) -> None:
        """Move a message, with its error, to the dead-letter queue."""
        ...

    async def dead_letters(self, queue: QueueName, limit: int) -> list[DeadLetter]:
        """The oldest dead letters."""
        ...

    async def forget_dead_letters(self, queue: QueueName, before: datetime, limit: int) -> int:
        """Delete those of the `limit` oldest dead letters that were buried before a time; returns how many."""
        ...

    async def oldest_dead_letter(self) -> datetime | None:
        """When the oldest dead letter of any queue was buried."""
        ...

    async def redrive(self, queue: QueueName, ids: Sequence[int] | None) -> int:
        """Send dead letters (all when `ids` is None) to their queue again; returns how many."""
        ...

    async def metrics(self) -> list[QueueMetrics]:
        """Depth and age of every queue, dead letters too."""
        ...

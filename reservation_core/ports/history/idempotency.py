"""Answers kept for requests that come again."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """What an Idempotency-Key was answered with."""

    request_hash: bytes
    status: int
    body: bytes


class Idempotency(Protocol):
    """Answers kept for a day, so that a repeated POST does nothing twice."""

    async def claim(self, user_id: int, key: str, request_hash: bytes, now: datetime) -> StoredAnswer | None:
        """Take the key (None: it was free, go on and `store`), or get its answer.

        A second caller with the same key waits for the first one's transaction.
        Raises IdempotencyConflictError when the key was used with another request.
        """
        ...

    async def store(self, user_id: int, key: str, status: int, body: bytes) -> None:
        """Keep the answer, in the same transaction as the act."""
        ...

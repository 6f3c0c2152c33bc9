"""Dead letters over REST."""

from typing import Annotated, Any

from pydantic import Field

from reservation_core.contracts.base import Time, Wire


class DeadLetterOut(Wire):
    """A message that failed permanently."""

    id: int
    queue: str
    enqueued_at: Time
    body: Any
    error: str
    read_count: int


class Redrive(Wire):
    """Which dead letters to send again; all when `ids` is null."""

    ids: Annotated[list[Annotated[int, Field(strict=True, ge=1, le=2**63 - 1)]], Field(max_length=1000)] | None = None


class Redriven(Wire):
    count: int

"""The append-only record."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from reservation_core.domain.model import Reason


@dataclass(frozen=True, slots=True)
class EventRecord:
    """One line of the append-only record."""

    id: int
    reservation_id: str | None
    at: datetime
    actor: str
    kind: str
    before: str | None
    after: str | None
    reason: Reason | None
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Recorded:
    """That something was recorded, and about what: the id of a job, a booking, a token ..."""

    id: int
    kind: str
    subject: str | None

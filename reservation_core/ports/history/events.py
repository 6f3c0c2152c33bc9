"""Writing the audit log."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from reservation_core.domain.model import Reason


@dataclass(frozen=True, slots=True)
class EventRecord:
    """One line of the audit log, about a reservation."""

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
    """The id and kind of a new line in the audit log, and the object that it is about."""

    id: int
    kind: str
    subject: str | None

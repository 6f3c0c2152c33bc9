"""The stored chain of digests over the audit log."""

from dataclasses import dataclass
from datetime import datetime

from reservation_core.domain.history.audit_chain import Link


@dataclass(frozen=True, slots=True)
class ChainHead:
    """The newest link, and when it was added."""

    link: Link
    chained_at: datetime


@dataclass(frozen=True, slots=True)
class EventsAhead:
    """The ids of the next events: up to `through`, without a gap up to `unbroken` (None: the first is missing)."""

    through: int
    unbroken: int | None

"""The chain of digests over the audit log, as it is kept and read."""

from dataclasses import dataclass
from datetime import datetime

from reservation_core.domain.history.audit_chain import Link


@dataclass(frozen=True, slots=True)
class ChainHead:
    """The newest link, and when it was made."""

    link: Link
    chained_at: datetime


@dataclass(frozen=True, slots=True)
class EventsAhead:
    """How far the next events go, by their ids, and how far without a missing one (None: the first is missing)."""

    through: int
    unbroken: int | None

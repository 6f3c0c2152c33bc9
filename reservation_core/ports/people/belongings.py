"""A user's unfinished jobs and bookings."""

from dataclasses import dataclass
from datetime import datetime

from reservation_core.domain.statuses import ReservationKind


@dataclass(frozen=True, slots=True)
class Belonging:
    """An unfinished job or booking. `starts_at` is the start of a booking's slot, or when a job began to run."""

    id: str
    kind: ReservationKind
    status: str
    name: str | None
    starts_at: datetime | None
    ends_at: datetime | None

"""What somebody has that is not over."""

from dataclasses import dataclass
from datetime import datetime

from reservation_core.domain.model import ReservationKind


@dataclass(frozen=True, slots=True)
class Belonging:
    """A job or booking that is not over. `starts_at` is a booking's slot's, or when a job began to run."""

    id: str
    kind: ReservationKind
    status: str
    name: str | None
    starts_at: datetime | None
    ends_at: datetime | None

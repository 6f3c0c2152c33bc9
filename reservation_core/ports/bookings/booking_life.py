"""What happens to bookings as time passes."""

from dataclasses import dataclass
from datetime import datetime

from reservation_core.domain.model import BookingStatus


@dataclass(frozen=True, slots=True)
class LeftOver:
    """A job that waits or runs within a booking that is over, and how that stands."""

    job_id: str
    booking_id: str
    booking_status: BookingStatus
    booking_end: datetime


@dataclass(frozen=True, slots=True)
class WaitlistMark:
    """What changes whenever the waitlist does: how many wait, who came last, and how often they were changed."""

    waiting: int
    last: int
    versions: int

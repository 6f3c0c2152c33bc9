"""Changes of bookings over time."""

from dataclasses import dataclass
from datetime import datetime

from reservation_core.domain.statuses import BookingStatus


@dataclass(frozen=True, slots=True)
class OrphanedJob:
    """A job that waits or runs in a finished booking."""

    job_id: str
    booking_id: str
    booking_status: BookingStatus
    booking_end: datetime


@dataclass(frozen=True, slots=True)
class WaitlistMark:
    """A value that changes with the waitlist: its length, its newest entry, and the sum of its versions."""

    waiting: int
    last: int
    versions: int

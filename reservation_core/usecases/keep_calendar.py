"""Everything in the calendar that has a time, looked at once: bookings, maintenance windows, the waitlist."""

from dataclasses import dataclass
from datetime import timedelta

from reservation_core.ports.ids import IdSource
from reservation_core.ports.transactions import UnitOfWorkFactory
from reservation_core.usecases.keep_bookings import BookingKeeping, keep_bookings
from reservation_core.usecases.maintenance import keep_windows
from reservation_core.usecases.repeat import until_not_lost
from reservation_core.usecases.waitlist import serve_waitlist


@dataclass(frozen=True, slots=True)
class CalendarReport:
    """What one look did: bookings changed, jobs ended with their booking, windows begun or over, requests served."""

    changed: int
    ended_jobs: int
    windows: int
    served: int

    def __bool__(self) -> bool:
        return bool(self.changed or self.ended_jobs or self.windows or self.served)


async def keep_calendar(
    uow_factory: UnitOfWorkFactory, ids: IdSource, keeping: BookingKeeping, offer: timedelta
) -> CalendarReport:
    """Do what is due. What was given back is served last; an offer stands for `offer`."""
    report = await until_not_lost(lambda: keep_bookings(uow_factory, ids, keeping))
    windows = await until_not_lost(lambda: keep_windows(uow_factory))
    served = await until_not_lost(lambda: serve_waitlist(uow_factory, ids, offer))
    return CalendarReport(report.changed, report.ended_jobs, windows, served)

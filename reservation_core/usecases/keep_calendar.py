"""Everything in the calendar that has a time, looked at once: bookings, maintenance windows, the waitlist."""

from dataclasses import dataclass

from reservation_core.ports.ids import IdSource
from reservation_core.ports.transactions import UnitOfWorkFactory
from reservation_core.usecases.disable_user import settle_disabled
from reservation_core.usecases.keep_bookings import BookingKeeping, keep_bookings
from reservation_core.usecases.maintenance import keep_windows
from reservation_core.usecases.repeat import until_not_lost
from reservation_core.usecases.waitlist import Waitlist


@dataclass(frozen=True, slots=True)
class CalendarReport:
    """What one look did: bookings changed, jobs ended with their booking, windows begun or over, requests served.

    `settled`: what disabled users had waiting.
    """

    changed: int
    ended_jobs: int
    windows: int
    served: int
    settled: int

    def __bool__(self) -> bool:
        return bool(self.changed or self.ended_jobs or self.windows or self.served or self.settled)


async def keep_calendar(
    uow_factory: UnitOfWorkFactory, ids: IdSource, keeping: BookingKeeping, waitlist: Waitlist
) -> CalendarReport:
    """Do what is due. What was given back is served last."""
    settled = await settle_disabled(uow_factory)
    report = await until_not_lost(lambda: keep_bookings(uow_factory, ids, keeping))
    windows = await until_not_lost(lambda: keep_windows(uow_factory))
    served = await until_not_lost(waitlist.serve)
    return CalendarReport(report.changed, report.ended_jobs, windows, served, settled)

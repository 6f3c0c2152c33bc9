"""Apply all due changes of the calendar: bookings, maintenance windows, the waitlist."""

from dataclasses import dataclass
from datetime import timedelta

from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.ports.ids import IdSource
from reservation_core.usecases.bookings.keep_bookings import BookingKeeping, BookingsReport, keep_bookings
from reservation_core.usecases.bookings.waitlist import Waitlist
from reservation_core.usecases.nodes.maintenance import add_joined_cards, keep_windows
from reservation_core.usecases.people.disable_user import settle_disabled
from reservation_core.usecases.repeat_lost_transactions import repeat_lost


@dataclass(frozen=True, slots=True)
class CalendarReport:
    """The numbers of changed bookings, jobs ended with their booking, changed windows and served requests.

    `settled`: ended requests of disabled users.
    """

    changed: int
    ended_jobs: int
    windows: int
    served: int
    settled: int

    def __bool__(self) -> bool:
        return bool(self.changed or self.ended_jobs or self.windows or self.served or self.settled)


async def keep_calendar(
    uow_factory: UnitOfWorkFactory,
    ids: IdSource,
    keeping: BookingKeeping,
    waitlist: Waitlist,
    joining: timedelta | None = None,
) -> CalendarReport:
    """Apply due changes; the waitlist comes last, after GPUs were freed.

    With `joining` (how long pods take to end), windows take in GPUs that have joined their nodes. Parts without due
    changes are skipped, as there are mostly none.
    """
    async with uow_factory(one_statement=True) as uow:
        work = await uow.calendar_due.work(keeping.rules)
    settled = await settle_disabled(uow_factory) if work.disabled_users else 0
    report = BookingsReport(0, 0)
    if work.bookings or work.left_over_jobs:
        report = await repeat_lost(lambda: keep_bookings(uow_factory, ids, keeping))
    windows = await repeat_lost(lambda: keep_windows(uow_factory)) if work.windows else 0
    served = await repeat_lost(waitlist.serve) if work.waitlist else 0
    if work.joined_cards and joining is not None:
        await repeat_lost(lambda: add_joined_cards(uow_factory, ids, joining))
    return CalendarReport(report.changed, report.ended_jobs, windows, served, settled)

"""The leader's look at the calendar: bookings begin and end on time, however seldom the expiry runs."""

from dataclasses import asdict

import structlog

from reservation_core.domain.bookings.due_changes import BookingRules
from reservation_core.runtime.settings.components import ProcessorSettings
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.bookings.keep_bookings import BookingKeeping
from reservation_core.usecases.bookings.waitlist import Waitlist
from reservation_core.usecases.keep_calendar import keep_calendar
from reservation_core.usecases.policy.send_digests import send_digests
from reservation_core.usecases.policy.usage import sum_up_given_back, sum_up_usage
from reservation_core.usecases.spend_budgets import sum_up_refunds

CALENDAR_EVERY_S = 1.0
SERVE_AT_MOST_S = 0.25
SUM_UP_EVERY_S = 30.0

_log = structlog.get_logger(__name__)


def waitlist_of(runtime: Runtime, settings: ProcessorSettings) -> Waitlist:
    """The leader's waitlist: thousands of entries keep the leader from nothing else that is due."""
    return Waitlist(runtime.uow, runtime.ids, settings.offer, SERVE_AT_MOST_S)


async def keep_once(runtime: Runtime, settings: ProcessorSettings, waitlist: Waitlist) -> None:
    """Begin and end once what is due in the calendar."""
    keeping = BookingKeeping(BookingRules(settings.starting_soon_s, settings.ending_soon_s), settings.no_show_grace)
    report = await keep_calendar(runtime.uow, runtime.ids, keeping, waitlist, settings.turnaround)
    if report:
        _log.info("calendar", **asdict(report))


async def sum_up(runtime: Runtime) -> None:
    """Sum up once what was given back and used, and each week: what is not summed yet counts as well."""
    await sum_up_given_back(runtime.uow)
    await sum_up_usage(runtime.uow)
    await sum_up_refunds(runtime.uow)
    if projects := await send_digests(runtime.uow):
        _log.info("the week of projects is summed up", projects=projects)

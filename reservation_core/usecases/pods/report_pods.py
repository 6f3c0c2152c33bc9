"""Take in reports about foreign pods, so that they count as use of bookings."""

from collections.abc import Sequence

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.pods.pod_reports import Judged, PodReport, Register
from reservation_core.ports.people.identities import Principal
from reservation_core.ports.wakeups import Channel
from reservation_core.usecases.pods.schedulability import require_service


async def report_pods(uow: UnitOfWork, principal: Principal, reports: Sequence[PodReport]) -> list[Judged]:
    """Take reports in, and return the verdict of every report; idempotent.

    Concurrent changes of the bookings are waited for. Raises ForbiddenError unless the caller is a service or an
    administrator.
    """
    require_service(principal)
    if not reports:
        return []
    bookings = await uow.admissions.hold(reports, await uow.now())
    slots = await uow.admissions.slots(bookings)
    known = await uow.admissions.of_pods(sorted({report.uid for report in reports}))
    # Read after the locks, so that it is not before the changes that were waited for.
    now = await uow.now()
    register = Register(slots, known, now)
    judged = [register.report(report) for report in reports]
    await uow.admissions.write(list(register.new.values()), list(register.ended.values()), principal.user, now)
    if register.new or register.ended:
        uow.wake(Channel.EVENTS)
    return judged

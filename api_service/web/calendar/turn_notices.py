"""Whether the visitor is notified when the turn of a booking on the waitlist comes."""

from api_service.web.visit import Visit
from reservation_core.contracts.base import Page
from reservation_core.contracts.bookings import BookingOut
from reservation_core.contracts.notices import NoticePreferencesOut, NoticeTargetOut
from reservation_core.domain.notices.reach import kind_at_turn, why_not_notified


async def own_targets(visit: Visit) -> list[NoticeTargetOut]:
    """The visitor's notification addresses."""
    which = {"user": visit.principal.user}
    return await visit.rest.all(Page[NoticeTargetOut], "/v1/notifications/targets", which, at_most=200)


async def why_not_at_turn(visit: Visit, booking: BookingOut) -> str | None:
    """Why no notification of it reaches the visitor, whose booking it is; None if one does."""
    preferences = await visit.rest.get(NoticePreferencesOut, "/v1/notifications/preferences")
    chosen = preferences.kinds[kind_at_turn(auto_accept=booking.auto_accept)]
    targets = ((target.channel, target.status) for target in await own_targets(visit))
    return why_not_notified(chosen, preferences.unavailable, targets)

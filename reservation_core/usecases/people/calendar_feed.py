"""Private calendar addresses: whoever has one can read its owner's bookings and do nothing else."""

import hmac
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.bookings.nouns import OPEN_BOOKINGS, Booking
from reservation_core.domain.errors import NotFoundError
from reservation_core.domain.event_kinds import PeopleEventKind
from reservation_core.domain.model import BookingStatus
from reservation_core.ports.ids import IdSource
from reservation_core.ports.people.identities import Principal
from reservation_core.usecases.people.tokens import maker_of

PAST = timedelta(days=90)
MOST = 5000
"""So many bookings are in a calendar at most; of more the oldest are left out."""

_SHOWN = OPEN_BOOKINGS | {BookingStatus.ENDED, BookingStatus.RELEASED}


@dataclass(frozen=True, slots=True)
class MadeFeed:
    """A new address; `expires_at` is when the token ends that it was made with."""

    secret: str = field(repr=False)
    created_at: datetime
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class Feed:
    """What a calendar program gets. `made_with`: the token that its address was made with."""

    user: str
    made_with: str | None
    bookings: tuple[Booking, ...]
    now: datetime


async def make_feed(uow: UnitOfWork, principal: Principal, ids: IdSource) -> MadeFeed:
    """A new address for the caller; the old one stops working. It ends with the token that it is made with.

    Raises ForbiddenError for a caller whose token or session has ended.
    """
    secret = ids.new_secret()
    now = await uow.now()
    maker, reach = await maker_of(uow, principal, now)
    await uow.calendar_feeds.put(principal.user_id, ids.digest(secret), now, maker)
    await uow.events.append(
        actor=principal.user, kind=PeopleEventKind.CALENDAR_FEED_MADE, at=now, subject=f"user:{principal.user}"
    )
    return MadeFeed(secret, now, reach.expires_at)


async def remove_feed(uow: UnitOfWork, principal: Principal) -> None:
    """The caller's address stops working. Raises NotFoundError when there is none."""
    if not await uow.calendar_feeds.remove(principal.user_id):
        raise NotFoundError("You have no calendar address. POST /v1/bookings/feed makes one.")
    await uow.events.append(
        actor=principal.user,
        kind=PeopleEventKind.CALENDAR_FEED_REMOVED,
        at=await uow.now(),
        subject=f"user:{principal.user}",
    )


async def read_feed(uow: UnitOfWork, secret: str, ids: IdSource) -> Feed | None:
    """The bookings behind an address, from 90 days ago on and all ahead, at most MOST; None when it is nobody's."""
    digest = ids.digest(secret)
    now = await uow.now()
    owner = await uow.calendar_feeds.owner(digest, now)
    if owner is None or not hmac.compare_digest(owner.digest, digest):
        return None
    bookings = await uow.bookings.latest(owner.user_id, now - PAST, _SHOWN, MOST)
    return Feed(owner.user, owner.made_with, tuple(bookings), now)

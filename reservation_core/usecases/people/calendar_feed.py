"""Private calendar addresses, with which the owner's bookings can be read and nothing else."""

import hmac
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.bookings.nouns import OPEN_BOOKINGS, Booking
from reservation_core.domain.errors import NotFoundError
from reservation_core.domain.event_kinds import PeopleEventKind
from reservation_core.domain.statuses import BookingStatus
from reservation_core.ports.ids import IdSource
from reservation_core.ports.people.identities import Principal
from reservation_core.usecases.people.tokens import maker_of

PAST = timedelta(days=90)
MOST = 5000
"""The most bookings in a calendar; the oldest are left out."""

_SHOWN = OPEN_BOOKINGS | {BookingStatus.ENDED, BookingStatus.RELEASED}


@dataclass(frozen=True, slots=True)
class MadeFeed:
    """A new address; `expires_at` is the end of the token that it was made with."""

    secret: str = field(repr=False)
    created_at: datetime
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class Feed:
    """The content of a calendar. `made_with`: the token that its address was made with."""

    user: str
    made_with: str | None
    bookings: tuple[Booking, ...]
    now: datetime


async def make_feed(uow: UnitOfWork, principal: Principal, ids: IdSource) -> MadeFeed:
    """Make a new address for the caller, in place of the old one. It ends with the token that it is made with.

    Raises ForbiddenError for a caller whose token or session has ended.
    """
    secret = ids.new_secret()
    now = await uow.now()
    maker, reach = await maker_of(uow, principal, now)
    await uow.calendar_feeds.replace(principal.user_id, ids.digest(secret), now, maker)
    await uow.events.append(
        actor=principal.user, kind=PeopleEventKind.CALENDAR_FEED_MADE, at=now, subject=f"user:{principal.user}"
    )
    return MadeFeed(secret, now, reach.expires_at)


async def remove_feed(uow: UnitOfWork, principal: Principal) -> None:
    """Remove the caller's address. Raises NotFoundError when there is none."""
    if not await uow.calendar_feeds.remove(principal.user_id):
        raise NotFoundError("You have no calendar address. `gpu-dev book feed` makes one.")
    await uow.events.append(
        actor=principal.user,
        kind=PeopleEventKind.CALENDAR_FEED_REMOVED,
        at=await uow.now(),
        subject=f"user:{principal.user}",
    )


async def read_feed(uow: UnitOfWork, secret: str, ids: IdSource) -> Feed | None:
    """Read the bookings of an address from 90 days ago on, at most MOST; None for an unknown address."""
    digest = ids.digest(secret)
    now = await uow.now()
    owner = await uow.calendar_feeds.owner(digest, now)
    if owner is None or not hmac.compare_digest(owner.digest, digest):
        return None
    bookings = await uow.bookings.latest(owner.user_id, now - PAST, _SHOWN, MOST)
    return Feed(owner.user, owner.made_with, tuple(bookings), now)

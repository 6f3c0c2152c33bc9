"""Private calendar addresses: whoever has one can read its owner's bookings and do nothing else."""

import hmac
from dataclasses import dataclass
from datetime import datetime, timedelta

from reservation_core.domain.bookings import OPEN_BOOKINGS, Booking
from reservation_core.domain.errors import NotFoundError
from reservation_core.domain.model import BookingStatus
from reservation_core.ports.identities import Principal
from reservation_core.ports.ids import IdSource
from reservation_core.ports.transactions import UnitOfWork
from reservation_core.usecases.tokens import require_working

PAST = timedelta(days=90)
MOST = 5000
"""So many bookings are in a calendar at most; of more the oldest are left out."""

_SHOWN = OPEN_BOOKINGS | {BookingStatus.ENDED, BookingStatus.RELEASED}


@dataclass(frozen=True, slots=True)
class Feed:
    """What a calendar program gets."""

    user: str
    bookings: tuple[Booking, ...]
    now: datetime


async def make_feed(uow: UnitOfWork, principal: Principal, ids: IdSource) -> tuple[str, datetime]:
    """A new address for the caller; the old one stops working. Answers its secret and when it was made.

    Raises ForbiddenError for a caller whose token or session has ended.
    """
    secret = ids.new_secret()
    now = await uow.now()
    await require_working(uow, principal.token_id, now)
    await uow.calendar_feeds.put(principal.user_id, ids.digest(secret), now)
    await uow.events.append(actor=principal.user, kind="calendar_feed_made", at=now, subject=f"user:{principal.user}")
    return secret, now


async def remove_feed(uow: UnitOfWork, principal: Principal) -> None:
    """The caller's address stops working. Raises NotFoundError when there is none."""
    if not await uow.calendar_feeds.remove(principal.user_id):
        raise NotFoundError("You have no calendar address. POST /v1/bookings/feed makes one.")
    await uow.events.append(
        actor=principal.user, kind="calendar_feed_removed", at=await uow.now(), subject=f"user:{principal.user}"
    )


async def read_feed(uow: UnitOfWork, secret: str, ids: IdSource) -> Feed | None:
    """The bookings behind an address, from 90 days ago on and all ahead, at most MOST; None when it is nobody's."""
    digest = ids.digest(secret)
    found = await uow.calendar_feeds.owner(digest)
    if found is None or not hmac.compare_digest(found[2], digest):
        return None
    user_id, user, _ = found
    now = await uow.now()
    return Feed(user, tuple(await uow.bookings.latest(user_id, now - PAST, _SHOWN, MOST)), now)

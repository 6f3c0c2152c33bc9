"""Who on the waitlist is served when cards come free.

The rule: requests are looked at in the order in which they came, and each that fits into what is free (those served
before it taken into account) is served. One that does not fit holds nobody up: what it can't use goes to the next who
can. So whoever is served got nothing that somebody before them could have had at that moment.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from reservation_core.domain.bookings import Span, Wanted
from reservation_core.domain.calendar import to_micros
from reservation_core.domain.card_choice import BookableCard, choose, with_booked


@dataclass(frozen=True, slots=True)
class WaitingRequest:
    """A booking on the waitlist: who asks for what, and when."""

    id: str
    user_id: int
    user: str
    project: str | None
    wanted: Wanted
    span: Span


def servable(requests: Iterable[WaitingRequest], cards: Sequence[BookableCard], now: datetime) -> list[WaitingRequest]:
    """Those who can be served by the calendar, in their order. `requests` come in the order of the line."""
    found: list[WaitingRequest] = []
    free = list(cards)
    in_vain: set[tuple[Wanted, Span]] = set()
    for request in requests:
        # What could not be had is not had by the next who asks for the same: cards only become fewer here.
        if request.span.start <= now or (request.wanted, request.span) in in_vain:
            continue
        start, end = to_micros(request.span.start), to_micros(request.span.end)
        chosen = choose(free, request.wanted, start, end)
        if chosen is None:
            in_vain.add((request.wanted, request.span))
        else:
            found.append(request)
            free = with_booked(free, chosen, start, end)
    return found

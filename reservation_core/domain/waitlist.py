"""Who on the waitlist is served when cards come free.

The rule: requests are looked at in the order in which they came, and each that fits into what is free (those served
before it taken into account) is served. One that does not fit holds nobody up, nor does one that the policy does not
let have it now: what it can't use goes to the next who can. So whoever is served got nothing that somebody before them
could have had at that moment.
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


class Turns:
    """One look along the line: whose turn is next, with what those served before them have left.

    `requests` come in the order of the line. Who has the turn is taken to be served unless they are passed over.
    """

    def __init__(self, requests: Iterable[WaitingRequest], cards: Sequence[BookableCard], now: datetime) -> None:
        self._requests = iter(requests)
        self._now = now
        self._free = list(cards)
        self._free_before = self._free
        self._in_vain: set[tuple[Wanted, Span]] = set()

    def next(self) -> WaitingRequest | None:
        """The next who can be served by the calendar; None when the line is at its end."""
        for request in self._requests:
            # What could not be had is not had by the next who asks for the same: cards only become fewer here.
            if request.span.start <= self._now or (request.wanted, request.span) in self._in_vain:
                continue
            start, end = to_micros(request.span.start), to_micros(request.span.end)
            chosen = choose(self._free, request.wanted, start, end)
            if chosen is None:
                self._in_vain.add((request.wanted, request.span))
                continue
            self._free_before, self._free = self._free, with_booked(self._free, chosen, start, end)
            return request
        return None

    def pass_over(self) -> None:
        """Who had the turn last may not have it now (a rule, say): it goes to the next who can."""
        self._free = self._free_before

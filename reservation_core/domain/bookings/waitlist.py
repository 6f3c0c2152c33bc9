"""Service order of the waitlist when cards come free.

The rule: requests are looked at in the order in which they came, and each that fits into what is free (those served
before it taken into account) is served. One that does not fit holds nobody up, nor does one that the policy does not
let have it now: what it can't use goes to the next who can. So whoever is served got nothing that somebody before them
could have had at that moment.

A look along the whole line is one pass, over the calendar as it was when the pass began, however long it takes. A
request that could not be served in one pass can't be in the next unless something has come free for it: only those are
looked at again (`WaitlistState`), and now and then all of them, for what the policy allows changes by itself.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from reservation_core.domain.bookings.card_choice import BookableCard, choose
from reservation_core.domain.bookings.free_cards import FreeCards, Freed
from reservation_core.domain.bookings.nouns import Span, Wanted
from reservation_core.domain.calendar import to_micros


@dataclass(frozen=True, slots=True)
class WaitingRequest:
    """A booking on the waitlist: who asks for what, and when."""

    id: str
    user_id: int
    user: str
    project: str | None
    wanted: Wanted
    span: Span


@dataclass(frozen=True, slots=True)
class Turn:
    """Somebody's turn: `among` are the cards (by id) that are free for them in this pass."""

    request: WaitingRequest
    among: frozenset[int]


class WaitlistPass:
    """One pass along the line: whose turn is next, with what those served before them have left.

    `requests` come in the order of the line. The request whose turn it is counts as served unless it is passed over.
    """

    def __init__(self, requests: Iterable[WaitingRequest], cards: Sequence[BookableCard], now: datetime) -> None:
        self._left = list(requests)
        self._left.reverse()
        self._now = now
        self._cards = list(cards)
        # Most looks are at nobody: nothing has come free.
        self._free = FreeCards(cards if self._left else ())
        self._free_before = self._free
        self._in_vain: set[tuple[Wanted, Span]] = set()

    @property
    def over(self) -> bool:
        """Whether everybody was looked at."""
        return not self._left

    @property
    def cards(self) -> list[BookableCard]:
        """The calendar with what those who were served have."""
        return self._free.cards or self._cards

    def look(self) -> Turn | None:
        """Look at the next of the line, who has the turn if they can be served by the calendar. Not to be asked when
        it is over."""
        request = self._left.pop()
        # What could not be had is not had by the next who asks for the same: cards only become fewer here.
        if request.span.start <= self._now or (request.wanted, request.span) in self._in_vain:
            return None
        start, end = to_micros(request.span.start), to_micros(request.span.end)
        if not self._free.could_serve(request.wanted, start, end):
            self._in_vain.add((request.wanted, request.span))
            return None
        free = self._free.free_for(start, end)
        chosen = choose(free, request.wanted, start, end)
        if chosen is None:
            raise AssertionError(f"{request.id} could be served and can't")
        self._free_before, self._free = self._free, self._free.booked(chosen, start, end)
        return Turn(request, frozenset(card.gpu_id for card in free))

    def pass_over(self) -> None:
        """The last turn fails (a rule, say): it goes to the next request that can have it."""
        self._free = self._free_before


class WaitlistState:
    """Knowledge kept from one pass to the next: which requests were looked at, and what the calendar was at its end."""

    def __init__(self) -> None:
        self._known: dict[str, WaitingRequest] = {}
        self._cards: list[BookableCard] = []

    def begin(
        self, requests: Sequence[WaitingRequest], cards: Sequence[BookableCard], now: datetime, *, everybody: bool
    ) -> WaitlistPass:
        """A pass over those who may be served by now, in the order of the line; with `everybody` over all."""
        freed = Freed(self._cards, cards)
        asked = [
            request
            for request in requests
            if everybody
            or self._known.get(request.id) != request
            or (freed and freed.concerns(request.wanted, to_micros(request.span.start), to_micros(request.span.end)))
        ]
        self._known = {request.id: request for request in requests}
        return WaitlistPass(asked, cards, now)

    def end(self, turns: WaitlistPass) -> None:
        """Everybody was looked at."""
        self._cards = turns.cards

    def forget(self) -> None:
        """A pass did not come to its end: the next is over everybody."""
        self._known = {}
        self._cards = []

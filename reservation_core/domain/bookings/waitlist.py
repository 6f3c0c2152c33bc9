"""The order in which the waitlist is served when GPUs become free.

Requests are tried in the order of arrival; each that fits the free GPUs left by those before it is served. A request
that does not fit, or that the policy does not allow now, holds up nobody: the next one that fits gets the GPUs. So
nobody is served with GPUs that an earlier request could have used at that moment.

One pass goes through the whole waitlist, on the calendar at its beginning, however long it takes. A request that failed
in one pass fails in the next unless something became free for it: only those requests are tried again
(`WaitlistState`), and now and then all of them, since the policy may allow more as time passes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from reservation_core.domain.bookings.asked_slots import Span
from reservation_core.domain.bookings.card_choice import BookableGpu, choose
from reservation_core.domain.bookings.free_cards import FreedTimes, FreeGpus
from reservation_core.domain.bookings.nouns import Wanted
from reservation_core.domain.calendar import to_micros


@dataclass(frozen=True, slots=True)
class WaitingRequest:
    """A booking on the waitlist: its user, request and slot."""

    id: str
    user_id: int
    user: str
    project: str | None
    wanted: Wanted
    span: Span


@dataclass(frozen=True, slots=True)
class Turn:
    """A request that can be served from the GPUs `among` (ids), which are free for it in this pass."""

    request: WaitingRequest
    among: frozenset[int]


class WaitlistPass:
    """One pass through the waitlist, with the GPUs that earlier requests leave.

    `requests` are in the order of the waitlist. A request with a turn counts as served unless it is passed over.
    """

    def __init__(self, requests: Iterable[WaitingRequest], gpus: Sequence[BookableGpu], now: datetime) -> None:
        self._left = list(requests)
        self._left.reverse()
        self._now = now
        self._cards = list(gpus)
        # Most passes are empty: nothing became free.
        self._free = FreeGpus(gpus if self._left else ())
        self._free_before = self._free
        self._in_vain: set[tuple[Wanted, Span]] = set()

    @property
    def over(self) -> bool:
        """Whether all requests were tried."""
        return not self._left

    @property
    def cards(self) -> list[BookableGpu]:
        """The calendar, with the served requests booked."""
        return self._free.cards or self._cards

    def try_next(self) -> Turn | None:
        """Try the next request; returns its turn if the calendar can serve it. Not to be called when `over`."""
        request = self._left.pop()
        # GPUs only become fewer in a pass: what failed once fails for an equal request.
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
        return Turn(request, frozenset(gpu.gpu_id for gpu in free))

    def pass_over(self) -> None:
        """Undo the last turn (a rule refused it, say): its GPUs are free for the next requests."""
        self._free = self._free_before


class WaitlistState:
    """The state between passes: the requests tried, and the calendar at the end of the last pass."""

    def __init__(self) -> None:
        self._known: dict[str, WaitingRequest] = {}
        self._cards: list[BookableGpu] = []

    def begin(
        self, requests: Sequence[WaitingRequest], gpus: Sequence[BookableGpu], now: datetime, *, everybody: bool
    ) -> WaitlistPass:
        """Begin a pass over the requests that may be served by now; with `everybody` over all."""
        freed = FreedTimes(self._cards, gpus)
        asked = [
            request
            for request in requests
            if everybody
            or self._known.get(request.id) != request
            or (freed and freed.concerns(request.wanted, to_micros(request.span.start), to_micros(request.span.end)))
        ]
        self._known = {request.id: request for request in requests}
        return WaitlistPass(asked, gpus, now)

    def end(self, turns: WaitlistPass) -> None:
        """Note that a pass tried all requests."""
        self._cards = turns.cards

    def forget(self) -> None:
        """Note that a pass did not complete: the next one covers all requests."""
        self._known = {}
        self._cards = []

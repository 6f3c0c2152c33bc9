"""Bookings in virtual time: their GPUs are chosen from those that are free then, as they are when somebody books."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from reservation_core.domain.bookings.asked_slots import Span
from reservation_core.domain.bookings.card_choice import BookableGpu, choose
from reservation_core.domain.bookings.nouns import Wanted
from reservation_core.domain.calendar import to_micros
from reservation_core.domain.plan import Commitment
from reservation_core.domain.pools.pool import Pool


@dataclass(frozen=True, slots=True)
class TraceBooking:
    """A booking of the past, which got its GPUs at `submitted_at` and kept them until `until`.

    That is the end of its `span`, or earlier if it was cancelled or released.
    """

    id: str
    wanted: Wanted
    span: Span
    submitted_at: datetime
    until: datetime
    owner: int = 0
    project: str | None = None


def booked_rows(booking: TraceBooking, pools: Iterable[Pool]) -> tuple[Commitment, ...]:
    """The rows of a booking that is made at its time, on usable GPUs of these pools; none if too few are free."""
    now = to_micros(booking.submitted_at)
    start = max(booking.span.start, booking.submitted_at)
    gpus = [
        BookableGpu(
            card.placed.gpu_id, card.placed.node, card.placed.index, pool.gpu_type, True, card.calendar.busy(now)
        )
        for pool in pools
        if booking.wanted.gpu_type in (None, pool.gpu_type)
        for node in pool.nodes
        for card in node.cards
    ]
    chosen = choose(gpus, booking.wanted, to_micros(start), to_micros(booking.span.end)) or ()
    return tuple(Commitment(booking.id, gpu.gpu_id, start, booking.span.end, False) for gpu in chosen)

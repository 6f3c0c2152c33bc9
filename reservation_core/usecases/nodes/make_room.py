"""Make room in the calendar for maintenance windows: move or cut bookings in the way.

A booking that has not begun moves to other GPUs if possible. Otherwise it ends before the window, and the rest of it
becomes a new booking: on other GPUs from then on, where some are free, or else on its own GPUs
from the window's end on. One that would have begun in the window begins when that is over.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.bookings.asked_slots import Span
from reservation_core.domain.bookings.card_choice import BookableGpu, choose
from reservation_core.domain.bookings.changes import BeginsLater, BookingEvent, CutShort, MovedAway
from reservation_core.domain.bookings.life import decide
from reservation_core.domain.bookings.maintenance import (
    Affected,
    GpuAddress,
    booking_fate,
    rest_of,
    split_booking,
)
from reservation_core.domain.bookings.nouns import Booking, ChosenGpu
from reservation_core.domain.bookings.refusals import from_now, this_minute
from reservation_core.domain.bookings.windows import Fate
from reservation_core.domain.calendar import merge, to_micros
from reservation_core.domain.errors import CalendarConflictError
from reservation_core.domain.statuses import BookingStatus, ReservationKind
from reservation_core.ports.bookings.bookings import NewBooking
from reservation_core.ports.ids import IdSource
from reservation_core.usecases.bookings.change import has_begun
from reservation_core.usecases.bookings.keep_bookings import carry_out_bookings
from reservation_core.usecases.bookings.read_booking_rules import cards_around


@dataclass(frozen=True, slots=True)
class ClearedWindow:
    """The window that needs room, and its reason for affected users; pods take `grace` to end."""

    cards: tuple[GpuAddress, ...]
    span: Span
    why: str
    actor: str
    grace: timedelta

    @property
    def gpu_ids(self) -> frozenset[int]:
        return frozenset(card.gpu_id for card in self.cards)


@dataclass(frozen=True, slots=True)
class _Rest:
    """The rest of a booking: its span, its GPUs, and these as text."""

    span: Span
    chosen: tuple[ChosenGpu, ...]
    where: str


async def move_or_cut(
    uow: UnitOfWork, booking: Booking, room: ClearedWindow, ids: IdSource, now: datetime
) -> Affected | None:
    """Move or cut a booking for a window; None when it is not in the way. Raises CalendarConflictError after a race."""
    begun = has_begun(booking, now)
    parts = split_booking(booking.span, room.span)
    if not begun:
        elsewhere = await _elsewhere(uow, booking, booking.span, room, now)
        if elsewhere is not None:
            await _carry_out(uow, booking, MovedAway(elsewhere.chosen, elsewhere.where, room.actor, room.why), ids, now)
            return Affected(booking.id, ReservationKind.BOOKING, booking.user, Fate.MOVED)
        if parts.after is not None and parts.cut <= booking.span.start and booking.status is BookingStatus.CONFIRMED:
            later = BeginsLater(parts.after.start, _own(booking), room.actor, room.why)
            await _carry_out(uow, booking, later, ids, now)
            return Affected(
                booking.id, ReservationKind.BOOKING, booking.user, Fate.BEGINS_LATER, resumes_at=parts.after.start
            )
    rest = await _rest(uow, booking, parts.after, parts.cut, room, now)
    rest_id = None if rest is None else ids.new_id("bkg")
    goes_on = (
        None if rest is None else f"It goes on as {rest_id} from {rest.span.start:%Y-%m-%dT%H:%M:%SZ} on {rest.where}."
    )
    if not await _carry_out(uow, booking, CutShort(parts.cut, room.span.end, room.actor, room.why, goes_on), ids, now):
        return None
    fate = booking_fate(booking.status, booking.span, parts.cut, now)
    ends_at = parts.cut if fate is Fate.ENDS_EARLIER else None
    if rest is None or rest_id is None:
        return Affected(booking.id, ReservationKind.BOOKING, booking.user, fate, ends_at)
    new = NewBooking(rest_of(booking, rest.span, rest_id, room.why, fate, now), rest.chosen)
    if not await uow.bookings.add([new], None):
        raise CalendarConflictError(
            "Another request took some of these GPUs at the same moment. Send the request again."
        )
    return Affected(booking.id, ReservationKind.BOOKING, booking.user, Fate.GOES_ON, ends_at, rest.span.start, rest_id)


async def _carry_out(uow: UnitOfWork, booking: Booking, event: BookingEvent, ids: IdSource, now: datetime) -> bool:
    change = decide(booking, event, now)
    if change is None:
        return False
    await carry_out_bookings(uow, [change], ids)
    return True


async def _rest(
    uow: UnitOfWork, booking: Booking, after: Span | None, cut: datetime, room: ClearedWindow, now: datetime
) -> _Rest | None:
    """The rest of a booking after `cut`: at once on other GPUs, or else after the window on its own.

    An open offer has no rest.
    """
    if booking.status is BookingStatus.OFFERED:
        return None
    begins = max(cut, this_minute(now))
    # For a booking that has not begun, other GPUs were searched already.
    if begins < booking.span.end and (begins > booking.span.start or has_begun(booking, now)):
        elsewhere = await _elsewhere(uow, booking, Span(begins, booking.span.end), room, now)
        if elsewhere is not None:
            return elsewhere
    if after is None:
        return None
    places = "; ".join(
        f"{node} {','.join(str(card.index) for card in booking.cards if card.node == node)}"
        for node in sorted({card.node for card in booking.cards})
    )
    return _Rest(after, _own(booking), places)


async def _elsewhere(uow: UnitOfWork, booking: Booking, span: Span, room: ClearedWindow, now: datetime) -> _Rest | None:
    """Other suitable GPUs for the whole span, with the window in the calendar and without the booking."""
    cards = _without_window(await cards_around(uow, span, now, without=(booking.id,)), room)
    chosen = choose(cards, booking.wanted, *from_now(span, now))
    return None if chosen is None else _Rest(span, chosen, _where(cards, chosen))


def _own(booking: Booking) -> tuple[ChosenGpu, ...]:
    return tuple(ChosenGpu(card.gpu_id, card.rank) for card in booking.cards)


def _without_window(cards: list[BookableGpu], room: ClearedWindow) -> list[BookableGpu]:
    """The calendar with the window."""
    closed = (to_micros(room.span.start), to_micros(room.span.end))
    return [
        replace(card, busy=tuple(merge([*card.busy, closed]))) if card.gpu_id in room.gpu_ids else card
        for card in cards
    ]


def _where(cards: list[BookableGpu], chosen: tuple[ChosenGpu, ...]) -> str:
    """The chosen GPUs as text."""
    picked = {card.gpu_id for card in chosen}
    by_node: dict[str, list[int]] = {}
    for card in cards:
        if card.gpu_id in picked:
            by_node.setdefault(card.node, []).append(card.index)
    return "; ".join(f"{node} {','.join(map(str, sorted(indices)))}" for node, indices in sorted(by_node.items()))

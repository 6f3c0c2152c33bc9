"""Offers of the waitlist: how long they stand, and who may answer."""

import pytest

from reservation_core.domain.bookings.changes import (
    Accepted,
    Booked,
    BookingEvent,
    Declined,
    GiveBack,
    HoldGpus,
    Offered,
    OfferRanOut,
    WaitRanOut,
)
from reservation_core.domain.bookings.due_changes import due
from reservation_core.domain.bookings.life import transition
from reservation_core.domain.bookings.nouns import Booking, Wanted
from reservation_core.domain.errors import AlreadyFinalError, NotOfferedError
from reservation_core.domain.statuses import BookingReason, BookingStatus
from tests.unit.reservation_core.domain.bookings.booked import (
    CARDS,
    END,
    HOUR,
    MINUTE,
    NOTHING,
    RULES,
    START,
    T0,
    booking,
    offered,
    told,
)


def test_an_offer_keeps_its_cards_until_it_is_answered() -> None:
    row, effects = transition(booking(BookingStatus.WAITING), Offered(CARDS, "h100", T0 + HOUR), T0)
    assert (row.status, row.offer_until) == (BookingStatus.OFFERED, T0 + HOUR)
    assert HoldGpus(CARDS) in effects
    after, effects = transition(row, Accepted("alice"), T0 + 30 * MINUTE)
    assert (after.status, after.offer_until, told(effects)) == (BookingStatus.CONFIRMED, None, ["booking_confirmed"])
    assert transition(after, Accepted("alice"), T0 + 31 * MINUTE) == (after, ())
    declined, effects = transition(row, Declined("alice"), T0 + 30 * MINUTE)
    assert (declined.status, declined.why.code) == (BookingStatus.CANCELLED, BookingReason.DECLINED)
    assert GiveBack(T0 + 30 * MINUTE) in effects
    assert transition(declined, Declined("alice"), T0 + 31 * MINUTE) == (declined, ())


def test_what_comes_free_for_somebody_who_wants_it_unasked_is_booked() -> None:
    row, effects = transition(
        booking(BookingStatus.WAITING, wanted=Wanted(2), auto_accept=True), Booked(CARDS, "t4"), T0
    )
    assert (row.status, row.wanted.gpu_type, told(effects)) == (BookingStatus.CONFIRMED, "t4", ["booking_confirmed"])


def test_an_offer_never_stands_beyond_the_start() -> None:
    row = offered(START + HOUR)
    assert row.offer_until == START
    assert due(row, NOTHING, RULES, START) == OfferRanOut()


def test_offers_and_waits_run_out() -> None:
    row, effects = transition(offered(), OfferRanOut(), T0 + HOUR)
    assert (row.status, row.why.code) == (BookingStatus.EXPIRED, BookingReason.OFFER_RAN_OUT)
    assert (told(effects), GiveBack(T0 + HOUR) in effects) == (["booking_offer_expired"], True)
    waits = booking(BookingStatus.WAITING, waits_until=START - HOUR)
    assert due(waits, NOTHING, RULES, START - HOUR - MINUTE) is None
    assert due(waits, NOTHING, RULES, START - HOUR) == WaitRanOut()
    assert due(booking(BookingStatus.WAITING, waits_until=END), NOTHING, RULES, START) == WaitRanOut()
    row, effects = transition(waits, WaitRanOut(), START - HOUR)
    assert (row.status, row.why.code) == (BookingStatus.EXPIRED, BookingReason.WAITED_IN_VAIN)
    assert told(effects) == ["booking_wait_expired"]


@pytest.mark.parametrize("event", [Accepted("alice"), Declined("alice")])
@pytest.mark.parametrize(
    ("row", "error"),
    [
        (booking(BookingStatus.WAITING), NotOfferedError),
        (offered(T0 + MINUTE), NotOfferedError),
        (booking(BookingStatus.ENDED), AlreadyFinalError),
        (booking(BookingStatus.EXPIRED), AlreadyFinalError),
    ],
)
def test_only_a_standing_offer_can_be_answered(event: BookingEvent, row: Booking, error: type[Exception]) -> None:
    with pytest.raises(error):
        transition(row, event, T0 + 2 * MINUTE)

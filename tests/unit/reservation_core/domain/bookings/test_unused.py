"""Bookings that nobody uses: warned in time, then released."""

from dataclasses import replace

import pytest

from reservation_core.domain.bookings.asked_slots import Span
from reservation_core.domain.bookings.changes import (
    GiveBack,
    GraceOver,
    StartReached,
)
from reservation_core.domain.bookings.due_changes import BookingFacts, advance
from reservation_core.domain.bookings.life import transition
from reservation_core.domain.bookings.nouns import Booking
from reservation_core.domain.statuses import BookingReason, BookingStatus
from tests.unit.reservation_core.domain.bookings.booked import (
    END,
    GRACE,
    HOUR,
    MINUTE,
    NOTHING,
    RULES,
    START,
    active,
    booking,
    kinds,
    run,
)


def test_an_unused_booking_is_warned_at_half_its_grace_and_released_after_it() -> None:
    seen = run(booking(), END, GRACE)
    assert seen["no_show_warning"] == START + 15 * MINUTE
    assert seen["booking_released"] == START + 30 * MINUTE
    assert "booking_ended" not in seen


def test_release_gives_the_rest_back() -> None:
    after, effects = transition(active(no_show_warned_at=START + 15 * MINUTE), GraceOver(), START + 30 * MINUTE)
    assert (after.status, after.why.code) == (BookingStatus.RELEASED, BookingReason.NOT_USED)
    assert after.finished_at == START + 30 * MINUTE
    assert GiveBack(START + 30 * MINUTE) in effects


def test_grace_alone_releases_nobody_who_was_not_warned() -> None:
    assert transition(active(), GraceOver(), START + HOUR) == (active(), ())
    warned = active(no_show_warned_at=START + 15 * MINUTE)
    assert transition(warned, GraceOver(), START + 29 * MINUTE) == (warned, ())
    used = replace(warned, used_at=START)
    assert transition(used, GraceOver(), START + HOUR) == (used, ())


def test_nobody_is_released_unwarned_however_late_the_run_is() -> None:
    changes = advance(active(), GRACE, RULES, START + 2 * HOUR)
    assert kinds(changes)[0] == "no_show_warning"
    assert "booking_released" not in kinds(changes)
    assert changes[-1].after.release_at == START + 2 * HOUR + 15 * MINUTE


def test_the_grace_counts_from_when_the_slot_was_seen_to_begin() -> None:
    began = advance(booking(), GRACE, RULES, START + HOUR)[0].after
    assert (began.activated_at, began.release_at) == (START + HOUR, START + HOUR + 30 * MINUTE)


@pytest.mark.parametrize(
    ("row", "facts"),
    [
        (active(), replace(GRACE, used_by=("job-1", START + MINUTE))),
        (active(), replace(GRACE, busy=True)),
        (active(), replace(GRACE, held=True)),
        (active(release_at=None), GRACE),
    ],
)
def test_a_used_a_busy_and_an_exempt_booking_are_not_released(row: Booking, facts: BookingFacts) -> None:
    seen = kinds(advance(row, facts, RULES, START + HOUR))
    assert "no_show_warning" not in seen
    assert "booking_released" not in seen


def test_a_grace_as_long_as_the_slot_means_nothing_until_the_slot_is_extended() -> None:
    facts = replace(NOTHING, grace=END - START)
    began = transition(booking(), StartReached(facts.grace), START)[0]
    late = END - MINUTE
    assert "no_show_warning" not in kinds(advance(began, facts, RULES, late))
    extended = replace(began, span=Span(START, END + 4 * HOUR))
    assert "no_show_warning" in kinds(advance(extended, facts, RULES, late))


def test_that_a_no_show_is_not_warned_of_yet_holds_up_no_other_warning() -> None:
    row = replace(active(release_at=START + 8 * HOUR), span=Span(START, START + 25 * HOUR))
    assert kinds(advance(row, NOTHING, RULES, START + HOUR)) == ["booking_ending_soon"]


def test_use_is_noted_with_its_time() -> None:
    [change] = advance(active(), replace(GRACE, used_by=("job-1", START + MINUTE)), RULES, START + 2 * MINUTE)
    assert (change.after.used_at, change.effects) == (START + MINUTE, ())

"""The life of a booking by the clock: its start, its workload, its warnings and its end."""

from dataclasses import replace

import pytest

from reservation_core.domain.bookings.asked_slots import Span
from reservation_core.domain.bookings.changes import (
    Cancelled,
    CutShort,
    GiveBack,
    HoldGpus,
    MovedAway,
    SlotOver,
    StartReached,
    StartWorkload,
    WorkloadRefused,
)
from reservation_core.domain.bookings.due_changes import BookingFacts, advance, due
from reservation_core.domain.bookings.life import transition
from reservation_core.domain.changes import Record
from reservation_core.domain.errors import AlreadyFinalError
from reservation_core.domain.model import PodWorkload
from reservation_core.domain.statuses import BookingReason, BookingStatus
from tests.unit.reservation_core.domain.bookings.booked import (
    CARDS,
    DAY,
    END,
    HOUR,
    MINUTE,
    NOTHING,
    RULES,
    START,
    T0,
    active,
    booking,
    kinds,
    run,
    told,
)


def test_a_booking_begins_and_ends_by_the_clock() -> None:
    assert run(booking(), END + HOUR) == {
        "booking_starting_soon": START - 10 * MINUTE,
        "booking_started": START,
        "booking_ending_soon": END - 10 * MINUTE,
        "booking_ended": END,
    }


def test_each_warning_is_given_once_and_those_due_before_it_was_made_never() -> None:
    late = booking(created_at=START - 30 * MINUTE)
    assert due(late, NOTHING, RULES, START - 11 * MINUTE) is None
    [change] = advance(late, NOTHING, RULES, START - 10 * MINUTE)
    assert kinds([change]) == ["booking_starting_soon"]
    assert not advance(change.after, NOTHING, RULES, START - 9 * MINUTE)


def test_missed_warnings_are_one_warning() -> None:
    [change] = advance(booking(), NOTHING, RULES, START - MINUTE)
    assert change.effects == (
        Record("booking_starting_soon", data={"starts_at": START.isoformat(), "seconds_left": 60}),
    )


def test_a_moved_booking_is_warned_of_again() -> None:
    [change] = advance(booking(), NOTHING, RULES, START - MINUTE)
    moved = replace(change.after, span=Span(START + HOUR, END + HOUR))
    assert due(moved, NOTHING, RULES, START - MINUTE) is None
    [change] = advance(moved, NOTHING, RULES, START)
    assert kinds([change]) == ["booking_starting_soon"]
    assert due(change.after, NOTHING, RULES, START + 49 * MINUTE) is None
    assert kinds(advance(change.after, NOTHING, RULES, START + 50 * MINUTE)) == ["booking_starting_soon"]


def test_a_short_booking_is_not_warned_of_its_end_before_it_began() -> None:
    row = booking(span=Span(START, START + 30 * MINUTE))
    began = advance(row, NOTHING, RULES, START)[-1].after
    assert not advance(began, NOTHING, RULES, START + 19 * MINUTE)
    assert kinds(advance(began, NOTHING, RULES, START + 20 * MINUTE)) == ["booking_ending_soon"]


def test_its_workload_is_started_once_and_not_when_it_is_too_late() -> None:
    row = booking(workload=PodWorkload(("true",)))
    assert StartWorkload() in advance(row, NOTHING, RULES, START)[0].effects
    assert StartWorkload() not in advance(replace(row, started_job="job-1"), NOTHING, RULES, START)[0].effects
    late = advance(row, NOTHING, RULES, END)
    assert kinds(late) == ["booking_started", "booking_ended"]
    assert all(StartWorkload() not in change.effects for change in late)


def test_cards_that_somebody_else_still_holds_at_the_start_are_told() -> None:
    [change] = advance(booking(), BookingFacts(late=("job-7",)), RULES, START)
    assert Record("start_promise_missed", data={"late": ["job-7"]}) in change.effects


@pytest.mark.parametrize(("job", "kind"), [(None, "workload_refused"), ("job-1", "workload_failed")])
def test_why_a_workload_did_not_start_is_told_once_and_stays(job: str | None, kind: str) -> None:
    after, effects = transition(active(), WorkloadRefused("The image could not be pulled.", job), START + MINUTE)
    assert (after.status, after.why.code) == (BookingStatus.ACTIVE, BookingReason.WORKLOAD_REFUSED)
    assert "The image could not be pulled." in after.why.detail
    assert "bkg-1" in after.why.detail
    assert told(effects) == [kind]
    assert transition(after, WorkloadRefused("Again.", job), START + MINUTE) == (after, ())
    over = transition(active(), SlotOver(), END)[0]
    assert transition(over, WorkloadRefused("Too late.", job), END) == (over, ())


@pytest.mark.parametrize("job", [None, "job-1"])
def test_a_refused_workload_and_maintenance_are_both_told_and_each_once(job: str | None) -> None:
    cut = CutShort(END - MINUTE, END, "root", "Maintenance: new fans.", "It goes on as bkg-2.")
    refused = WorkloadRefused("No image.", job)
    began = transition(booking(), StartReached(None), START)[0]
    for first, second in ((cut, refused), (refused, cut)):
        once = transition(began, first, START + MINUTE)[0]
        both = transition(once, second, START + MINUTE)[0]
        assert both.why.code is BookingReason.WORKLOAD_REFUSED
        for said in ("No image.", "bkg-1", "new fans", "bkg-2"):
            assert both.why.detail.count(said) == 1
        assert transition(both, refused, START + MINUTE) == (both, ())


def test_a_workload_that_failed_before_it_ran_is_found_while_the_slot_lasts() -> None:
    facts = BookingFacts(failed_workload=("job-1", "The image could not be pulled."))
    [change] = advance(active(), facts, RULES, START + MINUTE)
    assert kinds([change]) == ["workload_failed"]
    assert advance(change.after, facts, RULES, START + 2 * MINUTE) == []
    assert kinds(advance(active(), facts, RULES, END)) == ["booking_ended"]


def test_a_booking_in_which_something_runs_is_not_closed_yet() -> None:
    assert not advance(active(), BookingFacts(busy=True), RULES, END + MINUTE)
    assert kinds(advance(active(), NOTHING, RULES, END + MINUTE))[-1] == "booking_ended"


def test_cancelling_gives_the_rest_back() -> None:
    after, effects = transition(active(), Cancelled("root", by_admin=True), START + HOUR)
    assert (after.status, after.why.code) == (BookingStatus.CANCELLED, BookingReason.CANCELLED_BY_ADMIN)
    assert GiveBack(START + HOUR) in effects
    with pytest.raises(AlreadyFinalError):
        transition(after, Cancelled("alice"), START + HOUR)


def test_maintenance_moves_cuts_or_ends_a_booking() -> None:
    moved, effects = transition(booking(), MovedAway(CARDS, "node-b 0,1", "root", "New fans."), T0)
    assert (moved.status, moved.span, moved.why.code) == (
        BookingStatus.CONFIRMED,
        Span(START, END),
        BookingReason.MOVED,
    )
    assert effects[:2] == (GiveBack(T0), HoldGpus(CARDS))
    cut, effects = transition(booking(), CutShort(START + HOUR, END + DAY, "root", "New fans."), T0)
    assert (cut.status, cut.span) == (BookingStatus.CONFIRMED, Span(START, START + HOUR))
    assert GiveBack(START + HOUR, closing=False) in effects
    gone, effects = transition(booking(), CutShort(START, END + DAY, "root", "New fans."), T0)
    assert (gone.status, told(effects)) == (BookingStatus.CANCELLED, ["maintenance_affects", "booking_cancelled"])
    ended, effects = transition(active(), CutShort(START + HOUR, END + DAY, "root", "New fans."), START + HOUR)
    assert (ended.status, told(effects)) == (BookingStatus.ENDED, ["maintenance_affects", "booking_ended"])
    same = transition(booking(), CutShort(END, END + DAY, "root", "New fans."), T0)
    assert same == (booking(), ())

"""When a pod has to go, and what is due about it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.pods.pod_endings import (
    BookedTime,
    Ending,
    EndingStep,
    EndRules,
    GuardedPod,
    Memory,
    ending,
    needed_by,
)
from reservation_core.domain.statuses import BookingStatus

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
POD = GuardedPod("u1", "lab", "train-0", "a", "alice", None, NOON + HOUR, gpus=1, began=NOON - HOUR)
BOOKED = replace(POD, booking_id="bkg-1")
BOOKING = BookedTime("bkg-1", "alice", BookingStatus.ACTIVE, NOON - HOUR, NOON + HOUR)
RULES = EndRules()


def due(
    pod: GuardedPod = POD, memory: Memory | None = None, booking: BookedTime | None = None, at: datetime = NOON,
    rules: EndRules = RULES, displaced: str | None = None,
) -> Ending:  # fmt: skip
    return ending(pod, memory, booking, displaced, rules, at)


def test_a_pod_stays_until_its_end_and_goes_then() -> None:
    first = due()
    assert (first.end, first.step, first.mark, first.warn, first.asks) == (
        NOON + HOUR, EndingStep.NOTHING, False, False, False,
    )  # fmt: skip
    assert due(memory=first.after, at=NOON + HOUR - timedelta(seconds=1)).step is EndingStep.NOTHING
    last = due(memory=first.after, at=NOON + HOUR)
    assert (last.step, last.asks) == (EndingStep.EVICT, True)
    again = due(memory=last.after, at=NOON + 2 * HOUR)
    assert (again.step, again.asks) == (EndingStep.EVICT, False)


def test_a_pod_without_an_end_stays() -> None:
    found = due(replace(POD, marked_end=None), at=NOON + 1000 * HOUR)
    assert (found.end, found.step, found.warn) == (None, EndingStep.NOTHING, False)


@pytest.mark.parametrize("gone", [{"leaving": True}, {"finished_at": NOON}])
def test_what_is_going_is_left_alone(gone: dict[str, object]) -> None:
    found = due(replace(POD, **gone), at=NOON + 2 * HOUR)  # type: ignore[arg-type]
    assert (found.step, found.asks, found.warn, found.mark) == (EndingStep.NOTHING, False, False, False)


def test_taking_the_end_away_or_writing_a_later_one_wins_nothing() -> None:
    memory = due().after
    for forged in (None, NOON + 100 * HOUR):
        late = due(replace(POD, marked_end=forged, owner=None), memory, at=NOON + HOUR)
        assert (late.end, late.step) == (NOON + HOUR, EndingStep.EVICT)
        assert due(replace(POD, marked_end=forged), memory).mark


def test_an_end_that_was_written_earlier_counts() -> None:
    assert due(replace(POD, marked_end=NOON), due().after).step is EndingStep.EVICT


def test_the_booking_in_the_ledger_decides() -> None:
    memory = due(BOOKED, booking=BOOKING).after
    later = replace(BOOKING, ends=NOON + 3 * HOUR)
    found = due(BOOKED, memory, later, NOON + 2 * HOUR)
    assert (found.end, found.mark, found.step) == (NOON + 3 * HOUR, True, EndingStep.NOTHING)
    sooner = replace(BOOKING, ends=NOON + MINUTE)
    assert due(BOOKED, memory, sooner, NOON + MINUTE).step is EndingStep.EVICT
    stripped = replace(BOOKED, booking_id=None, owner=None, marked_end=None)
    assert due(stripped, memory, later, NOON + 3 * HOUR).step is EndingStep.EVICT


@pytest.mark.parametrize("status", list(BookingStatus))
def test_a_booking_that_is_over_ends_its_pods_at_once(status: BookingStatus) -> None:
    found = due(BOOKED, due(BOOKED, booking=BOOKING).after, replace(BOOKING, status=status))
    holds = status in (BookingStatus.CONFIRMED, BookingStatus.ACTIVE)
    assert found.step is (EndingStep.NOTHING if holds else EndingStep.EVICT)


def test_a_booking_that_was_moved_ahead_gives_no_right_now() -> None:
    moved = replace(BOOKING, status=BookingStatus.CONFIRMED, begins=NOON + HOUR, ends=NOON + 2 * HOUR)
    first = due(BOOKED, booking=moved)
    assert first.step is EndingStep.EVICT
    assert due(BOOKED, first.after, moved, NOON + 90 * MINUTE).step is EndingStep.NOTHING


def test_somebody_elses_booking_says_nothing() -> None:
    found = due(BOOKED, booking=replace(BOOKING, user="bob", ends=NOON + 9 * HOUR))
    assert found.end == NOON + HOUR


def test_warned_once_for_each_time_that_comes() -> None:
    memory, warned = None, []
    for minute in range(60):
        found = due(memory=memory, at=NOON + minute * MINUTE)
        memory = found.after
        warned += [minute] if found.warn else []
    assert warned == [30, 45, 55]


def test_who_looks_late_warns_once_for_all_that_was_missed() -> None:
    found = due(at=NOON + 50 * MINUTE)
    assert found.warn
    assert not due(memory=found.after, at=NOON + 51 * MINUTE).warn
    assert due(memory=found.after, at=NOON + 55 * MINUTE).warn


def test_a_longer_booking_is_warned_of_again() -> None:
    memory = due(BOOKED, booking=BOOKING, at=NOON + 55 * MINUTE).after
    longer = replace(BOOKING, ends=NOON + 2 * HOUR)
    assert not due(BOOKED, memory, longer, NOON + 60 * MINUTE).warn
    assert due(BOOKED, memory, longer, NOON + 90 * MINUTE).warn


def test_a_budget_keeps_a_pod_for_so_long_and_then_somebody_is_told_once() -> None:
    asked = replace(due(at=NOON + HOUR).after, refused_at=NOON + HOUR)
    soon = due(memory=asked, at=NOON + HOUR + 9 * MINUTE)
    assert (soon.step, soon.tells_refusal) == (EndingStep.EVICT, False)
    late = due(memory=asked, at=NOON + HOUR + 10 * MINUTE)
    assert (late.step, late.tells_refusal) == (EndingStep.EVICT, True)
    assert not due(memory=late.after, at=NOON + 2 * HOUR).tells_refusal
    forced = due(memory=asked, at=NOON + HOUR + 10 * MINUTE, rules=EndRules(override_budgets=True))
    assert (forced.step, forced.tells_refusal) == (EndingStep.DELETE, True)


def test_who_may_stay_after_all_is_no_longer_counted_as_refused() -> None:
    memory = replace(due(BOOKED, booking=BOOKING, at=NOON + HOUR).after, refused_at=NOON + HOUR)
    found = due(BOOKED, memory, replace(BOOKING, ends=NOON + 2 * HOUR), NOON + HOUR)
    assert (found.step, found.after.refused_at) == (EndingStep.NOTHING, None)


def test_a_pod_whose_cards_are_needed_goes_and_it_is_said_for_whom() -> None:
    found = due(replace(POD, marked_end=None, preemptible=True), displaced=needed_by("bkg-7"))
    assert (found.step, found.asks, found.displaced) == (EndingStep.EVICT, True, True)
    assert "bkg-7" in found.why


@given(st.lists(st.tuples(st.integers(-30, 60), st.sampled_from([None, 1, 5])), max_size=30))
def test_whatever_the_clock_does_a_pod_without_a_booking_never_gains_time(steps: list[tuple[int, int | None]]) -> None:
    """The clock goes on and back; the mark comes and goes, later than it was."""
    memory, at = due().after, NOON
    for minutes, hours in steps:
        at += minutes * MINUTE
        marked = None if hours is None else NOON + hours * HOUR
        found = due(replace(POD, marked_end=marked), memory, at=at)
        assert found.end == NOON + HOUR
        assert (found.step is EndingStep.EVICT) == (at >= NOON + HOUR)
        memory = found.after


def test_who_was_kept_and_may_stay_after_all_is_told_anew_when_their_time_comes() -> None:
    first = ending(BOOKED, None, BOOKING, "Its cards are needed.", RULES, NOON)
    assert (first.asks, first.step) == (True, EndingStep.EVICT)
    stays = ending(BOOKED, first.after, BOOKING, None, RULES, NOON + MINUTE)
    assert stays.step is EndingStep.NOTHING
    last = ending(BOOKED, stays.after, BOOKING, None, RULES, NOON + HOUR)
    assert (last.asks, last.displaced, last.step) == (True, False, EndingStep.EVICT)
    again = ending(BOOKED, last.after, BOOKING, None, RULES, NOON + HOUR + MINUTE)
    assert (again.asks, again.step) == (False, EndingStep.EVICT)

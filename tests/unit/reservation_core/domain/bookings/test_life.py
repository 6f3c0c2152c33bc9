"""The life of a booking: every transition and refusal by example, and any order of events by property."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.bookings.changes import (
    Accepted,
    Booked,
    BookingEvent,
    Cancelled,
    CutShort,
    DecidedBookingChange,
    Declined,
    EndingSoon,
    GiveBack,
    GraceOver,
    HoldGpus,
    MovedAway,
    NoShowLooms,
    Offered,
    OfferRanOut,
    SlotOver,
    StartingSoon,
    StartReached,
    StartWorkload,
    UsedBy,
    WaitRanOut,
    WorkloadRefused,
)
from reservation_core.domain.bookings.due_changes import BookingFacts, BookingRules, advance, due
from reservation_core.domain.bookings.life import decide, transition
from reservation_core.domain.bookings.nouns import (
    FINAL_BOOKINGS,
    Booking,
    BookingReason,
    ChosenGpu,
    Span,
    Wanted,
    Why,
)
from reservation_core.domain.changes import Record
from reservation_core.domain.errors import AlreadyFinalError, NotOfferedError
from reservation_core.domain.model import BookingStatus, PodWorkload
from tests.examples import examples

T0 = datetime(2030, 1, 1, 9, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
START, END = T0 + 2 * DAY, T0 + 2 * DAY + 4 * HOUR
CARDS = (ChosenGpu(1, 0), ChosenGpu(2, 0))
RULES = BookingRules((86_400, 3600, 600), (86_400, 3600, 600))
NOTHING = BookingFacts()
GRACE = BookingFacts(grace=30 * MINUTE)
HOLDING = {BookingStatus.OFFERED, BookingStatus.CONFIRMED, BookingStatus.ACTIVE}


def booking(status: BookingStatus = BookingStatus.CONFIRMED, **fields: object) -> Booking:
    """A booking of two h100 for four hours, two days from T0."""
    made = Booking(
        id="bkg-1",
        seq=1,
        user_id=1,
        user="alice",
        title=None,
        project=None,
        status=status,
        why=Why(BookingReason.BOOKED, "Booked."),
        wanted=Wanted(2, 1, "h100"),
        span=Span(START, END),
        workload=None,
        created_at=T0,
        version=1,
    )
    return replace(made, **fields)  # type: ignore[arg-type]


def active(**fields: object) -> Booking:
    """In its slot since its start."""
    return replace(transition(booking(), StartReached(30 * MINUTE), START)[0], **fields)  # type: ignore[arg-type]


def offered(until: datetime = T0 + HOUR) -> Booking:
    return transition(booking(BookingStatus.WAITING), Offered(CARDS, "h100", until), T0)[0]


def kinds(changes: list[DecidedBookingChange]) -> list[str]:
    return [effect.kind for change in changes for effect in change.effects if isinstance(effect, Record)]


def told(effects: tuple[object, ...]) -> list[str]:
    return [effect.kind for effect in effects if isinstance(effect, Record)]


def run(row: Booking, until: datetime, facts: BookingFacts = NOTHING, every: timedelta = MINUTE) -> dict[str, datetime]:
    """Look every so often; when each event was recorded (the last time of each)."""
    seen: dict[str, datetime] = {}
    now = row.created_at
    while now <= until:
        changes = advance(row, facts, RULES, now)
        for kind in kinds(changes):
            seen[kind] = now
        row = changes[-1].after if changes else row
        now += every
    return seen


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


def test_that_a_no_show_is_not_warned_of_yet_holds_up_no_other_warning() -> None:
    row = replace(active(release_at=START + 8 * HOUR), span=Span(START, START + 25 * HOUR))
    assert kinds(advance(row, NOTHING, RULES, START + HOUR)) == ["booking_ending_soon"]


def test_use_is_noted_with_its_time() -> None:
    [change] = advance(active(), replace(GRACE, used_by=("job-1", START + MINUTE)), RULES, START + 2 * MINUTE)
    assert (change.after.used_at, change.effects) == (START + MINUTE, ())


def test_a_booking_in_which_something_runs_is_not_closed_yet() -> None:
    assert not advance(active(), BookingFacts(busy=True), RULES, END + MINUTE)
    assert kinds(advance(active(), NOTHING, RULES, END + MINUTE))[-1] == "booking_ended"


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


EVENTS: st.SearchStrategy[BookingEvent] = st.one_of(
    st.sampled_from(
        [
            StartReached(None),
            StartReached(30 * MINUTE, ("job-9",)),
            SlotOver(),
            StartingSoon(),
            EndingSoon(),
            NoShowLooms(),
            GraceOver(),
            OfferRanOut(),
            WaitRanOut(),
            Accepted("alice"),
            Declined("alice"),
            Cancelled("alice"),
            Booked(CARDS, "h100"),
            MovedAway(CARDS, "b 0,1", "root", "Fans."),
            WorkloadRefused("It has no room."),
        ]
    ),
    st.builds(lambda m: UsedBy("job-1", START + m * MINUTE), st.integers(0, 100)),
    st.builds(lambda m: Offered(CARDS, "h100", T0 + m * HOUR), st.integers(1, 100)),
    st.builds(lambda m: CutShort(START + m * HOUR, END + DAY, "root", "Fans."), st.integers(-2, 5)),
)
STEPS = st.lists(st.tuples(EVENTS | st.none(), st.integers(0, 12 * 60)), max_size=25)
FACTS = st.builds(
    BookingFacts,
    used_by=st.none() | st.just(("job-1", START + MINUTE)),
    busy=st.booleans(),
    late=st.sampled_from([(), ("job-9",)]),
    grace=st.none() | st.just(30 * MINUTE),
    failed_workload=st.none() | st.just(("job-1", "The image could not be pulled.")),
)
FORWARD = {
    BookingStatus.WAITING: 0,
    BookingStatus.OFFERED: 1,
    BookingStatus.CONFIRMED: 2,
    BookingStatus.ACTIVE: 3,
    **dict.fromkeys(FINAL_BOOKINGS, 4),
}


@examples(400)
@given(
    st.sampled_from([BookingStatus.WAITING, BookingStatus.CONFIRMED]), st.booleans(), STEPS, st.lists(FACTS, min_size=1)
)
def test_any_order_of_events(status: BookingStatus, with_workload: bool, steps: list, facts: list) -> None:  # type: ignore[type-arg]
    """It only goes forward, holds cards exactly while it should, and starts its workload at most once."""
    row = booking(status, workload=PodWorkload(("true",)) if with_workload else None)
    now = T0
    holds = status is BookingStatus.CONFIRMED
    starts = 0
    for number, (event, minutes) in enumerate(steps):
        now += minutes * MINUTE
        around = facts[number % len(facts)]
        try:
            changes = advance(row, around, RULES, now) if event is None else [c for c in [decide(row, event, now)] if c]
        except (AlreadyFinalError, NotOfferedError):
            assert isinstance(event, Accepted | Declined | Cancelled)
            continue
        for change in changes:
            assert FORWARD[change.after.status] >= FORWARD[change.before.status]
            assert change.before.status not in FINAL_BOOKINGS
            for effect in change.effects:
                if isinstance(effect, GiveBack) and effect.closing:
                    holds = False
                if isinstance(effect, HoldGpus):
                    assert not holds
                    holds = True
                starts += isinstance(effect, StartWorkload)
            row = change.after
            assert holds == (row.status in HOLDING)
            assert (row.finished_at is not None) == (row.status in FINAL_BOOKINGS)
            assert row.span.start < row.span.end
        if event is None:
            assert due(row, around, RULES, now) is None
    assert starts <= 1
    assert with_workload or not starts


@examples(200)
@given(
    st.lists(st.integers(1, 600), min_size=1, max_size=60),
    st.sampled_from([None, 30 * MINUTE]),
    st.none() | st.integers(0, 200),
)
def test_however_often_one_looks_the_end_is_the_same(
    gaps: list[int], grace: timedelta | None, used: int | None
) -> None:
    """A missed run is made up by the next: which runs there were decides when things happen, not whether."""
    row, now = booking(), T0
    seen: list[str] = []
    used_at = None if used is None else START + used * MINUTE
    for gap in [*gaps, 600, 600, 600, 600, 600, 6000]:
        now += gap * MINUTE
        facts = BookingFacts(
            used_by=None if used_at is None or used_at > now else ("job-1", used_at),
            grace=grace,
        )
        changes = advance(row, facts, RULES, now)
        seen += kinds(changes)
        row = changes[-1].after if changes else row
    assert row.status in (BookingStatus.ENDED, BookingStatus.RELEASED)
    assert seen.count("booking_started") == 1
    assert seen.count("booking_ended") + seen.count("booking_released") == 1
    assert seen.count("booking_starting_soon") <= 3
    if row.status is BookingStatus.RELEASED:
        assert grace is not None
        assert row.used_at is None
        assert seen.count("no_show_warning") == 1
        assert seen.index("no_show_warning") < seen.index("booking_released")
    if grace is None:
        assert row.status is BookingStatus.ENDED

"""Whatever the order of events, a booking's life is a legal one."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.bookings.changes import (
    Accepted,
    Booked,
    BookingEvent,
    Cancelled,
    CutShort,
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
from reservation_core.domain.bookings.due_changes import BookingFacts, advance, due
from reservation_core.domain.bookings.life import decide
from reservation_core.domain.bookings.nouns import (
    FINAL_BOOKINGS,
)
from reservation_core.domain.errors import AlreadyFinalError, NotOfferedError
from reservation_core.domain.model import PodWorkload
from reservation_core.domain.statuses import BookingStatus
from tests.examples import ledger_examples
from tests.unit.reservation_core.domain.bookings.booked import (
    CARDS,
    DAY,
    END,
    HOLDING,
    HOUR,
    MINUTE,
    RULES,
    START,
    T0,
    booking,
    kinds,
)

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


@ledger_examples(400)
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


@ledger_examples(200)
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

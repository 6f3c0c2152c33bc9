"""Which booking a pod of others uses, and when: by example, and whatever is reported, late or twice, by property."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.pods.pod_reports import Admission, BookedSlot, PodReport, Register, ReportOutcome
from tests.examples import examples

NINE = datetime(2030, 1, 1, 9, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
MORNING = BookedSlot("bkg-a", "ada", "h100", 2, NINE, NINE + HOUR)
NEXT = BookedSlot("bkg-b", "ada", "h100", 2, NINE + HOUR, NINE + 2 * HOUR)


def pod(**fields: object) -> PodReport:
    values: dict[str, object] = {
        "user": "ada",
        "namespace": "lab",
        "name": "train-0",
        "uid": "u-1",
        "gpus": 1,
        **fields,
    }
    return PodReport(**values)  # type: ignore[arg-type]


def row(booking: str, admitted: datetime, ended: datetime | None = None) -> Admission:
    return Admission(booking, "u-1", "lab", "train-0", 1, admitted, ended)


def test_a_pod_counts_since_it_began_and_again_changes_nothing() -> None:
    register = Register([MORNING], [], NINE + 20 * MINUTE)
    judged = register.report(pod(since=NINE + 5 * MINUTE))
    assert (judged.outcome, judged.booking_id, judged.until) == (ReportOutcome.RECORDED, "bkg-a", NINE + HOUR)
    assert list(register.new.values()) == [row("bkg-a", NINE + 5 * MINUTE)]
    assert register.report(pod(since=NINE + 5 * MINUTE)).outcome is ReportOutcome.UNCHANGED
    later = Register([MORNING], register.new.values(), NINE + 30 * MINUTE)
    assert later.report(pod(since=NINE)).outcome is ReportOutcome.UNCHANGED
    assert not later.new
    assert not later.ended


def test_what_ran_before_the_slot_counts_from_its_beginning() -> None:
    register = Register([MORNING], [], NINE + MINUTE)
    register.report(pod(since=NINE - 3 * HOUR))
    assert list(register.new.values()) == [row("bkg-a", NINE)]


def test_an_end_closes_and_stays() -> None:
    register = Register([MORNING], [row("bkg-a", NINE)], NINE + 40 * MINUTE)
    assert register.report(pod(ended_at=NINE + 30 * MINUTE)).outcome is ReportOutcome.ENDED
    assert list(register.ended.values()) == [row("bkg-a", NINE, NINE + 30 * MINUTE)]
    # A report that was sent before it comes after it.
    assert register.report(pod(since=NINE)).outcome is ReportOutcome.UNCHANGED
    assert register.report(pod(ended_at=NINE + 35 * MINUTE)).outcome is ReportOutcome.UNCHANGED
    assert list(register.ended.values()) == [row("bkg-a", NINE, NINE + 30 * MINUTE)]


@pytest.mark.parametrize("booking", [None, "bkg-c"])
def test_an_end_that_is_told_again_uses_no_other_booking_of_that_time(booking: str | None) -> None:
    beside = BookedSlot("bkg-c", "ada", "h100", 2, NINE, NINE + 2 * HOUR)
    ended = row("bkg-a", NINE, NINE + 30 * MINUTE)
    register = Register([MORNING, beside], [ended], NINE + 40 * MINUTE)
    again = register.report(pod(booking_id=booking, since=NINE, ended_at=NINE + 30 * MINUTE))
    assert (again.outcome, again.reason) == (ReportOutcome.UNCHANGED, "Its end is known.")
    assert not register.new
    # A pod reported later is news.
    assert register.report(pod(since=NINE, ended_at=NINE + 35 * MINUTE)).outcome is ReportOutcome.RECORDED


def test_an_end_that_is_ahead_is_now() -> None:
    register = Register([MORNING], [row("bkg-a", NINE)], NINE + 40 * MINUTE)
    register.report(pod(ended_at=NINE + 5 * HOUR))
    assert [admission.ended_at for admission in register.ended.values()] == [NINE + 40 * MINUTE]


def test_one_that_came_and_went_unseen_is_recorded_whole() -> None:
    register = Register([MORNING], [], NINE + 3 * HOUR)
    judged = register.report(pod(since=NINE + MINUTE, ended_at=NINE + 9 * MINUTE))
    assert judged.outcome is ReportOutcome.RECORDED
    assert list(register.new.values()) == [row("bkg-a", NINE + MINUTE, NINE + 9 * MINUTE)]


def test_a_pod_goes_on_in_the_next_booking() -> None:
    register = Register([MORNING, NEXT], [row("bkg-a", NINE)], NINE + HOUR + MINUTE)
    judged = register.report(pod())
    assert (judged.outcome, judged.booking_id) == (ReportOutcome.RECORDED, "bkg-b")
    assert list(register.ended.values()) == [row("bkg-a", NINE, NINE + HOUR)]
    assert list(register.new.values()) == [row("bkg-b", NINE + HOUR)]


@pytest.mark.parametrize(
    ("used", "begins"),
    [
        (row("bkg-a", NINE, NINE + 40 * MINUTE), NINE + 40 * MINUTE),  # it ended there
        (row("bkg-a", NINE + 20 * MINUTE), NINE + 20 * MINUTE),  # it was thought to be there
    ],
)
def test_no_time_of_a_pod_counts_in_two_bookings(used: Admission, begins: datetime) -> None:
    """Two bookings at the same time, and another is named than the one that it was recorded in."""
    beside = BookedSlot("bkg-b", "ada", "h100", 2, NINE, NINE + 2 * HOUR)
    register = Register([MORNING, beside], [used], NINE + 50 * MINUTE)
    assert register.report(pod(booking_id="bkg-b", since=NINE + 10 * MINUTE)).outcome is ReportOutcome.RECORDED
    assert list(register.new.values()) == [row("bkg-b", begins)]


@pytest.mark.parametrize(
    ("report", "outcome"),
    [
        (pod(user="bob"), ReportOutcome.NO_BOOKING),
        (pod(gpus=3), ReportOutcome.NO_BOOKING),
        (pod(gpu_type="t4"), ReportOutcome.NO_BOOKING),
        (pod(booking_id="bkg-z"), ReportOutcome.NO_BOOKING),
        (pod(booking_id="bkg-a", user="bob"), ReportOutcome.NO_BOOKING),
        (pod(booking_id="bkg-a", gpus=3), ReportOutcome.NO_BOOKING),
        (pod(booking_id="bkg-a", gpu_type="t4"), ReportOutcome.NO_BOOKING),
        (pod(booking_id="bkg-b"), ReportOutcome.NOT_IN_SLOT),
        (pod(booking_id="bkg-a", since=NINE - HOUR, ended_at=NINE - MINUTE), ReportOutcome.NOT_IN_SLOT),
        (pod(ended_at=NINE), ReportOutcome.NOT_IN_SLOT),
    ],
)
def test_what_counts_as_nobodys_use(report: PodReport, outcome: ReportOutcome) -> None:
    register = Register([MORNING, NEXT], [], NINE + MINUTE)
    judged = register.report(report)
    assert (judged.outcome, judged.booking_id, judged.until) == (outcome, None, None)
    assert judged.reason
    assert not register.new
    assert not register.ended


def test_a_booking_that_is_named_is_told_to_be_too_small_and_what_is_known_stands() -> None:
    register = Register([MORNING], [row("bkg-a", NINE)], NINE + MINUTE)
    refused = register.report(pod(uid="u-2", booking_id="bkg-a", gpus=64, gpu_type="t4"))
    assert refused.reason == "bkg-a has 2 h100, the pod has 64 t4."
    # The cards of a booking can change under a pod that was recorded.
    assert register.report(pod(booking_id="bkg-a", gpus=64)).outcome is ReportOutcome.UNCHANGED
    assert register.report(pod(booking_id="bkg-a", gpus=64, ended_at=NINE + MINUTE)).outcome is ReportOutcome.ENDED


minutes = st.integers(-30, 200).map(lambda m: NINE + m * MINUTE)
slots = st.lists(
    st.tuples(st.integers(-20, 100), st.integers(1, 90), st.sampled_from(["ada", "bob"]), st.integers(1, 2)), max_size=4
).map(
    lambda found: [
        BookedSlot(f"bkg-{n}", user, "h100", gpus, NINE + a * MINUTE, NINE + (a + length) * MINUTE)
        for n, (a, length, user, gpus) in enumerate(found)
    ]
)


@st.composite
def reports(draw: st.DrawFn) -> PodReport:
    since, ended = draw(st.none() | minutes), draw(st.none() | minutes)
    if since is not None and ended is not None and ended < since:
        since, ended = ended, since
    return pod(
        user=draw(st.sampled_from(["ada", "bob"])),
        uid=draw(st.sampled_from(["u-1", "u-2"])),
        gpus=draw(st.integers(1, 2)),
        booking_id=draw(st.none() | st.integers(0, 4).map(lambda n: f"bkg-{n}")),
        since=since,
        ended_at=ended,
    )


@examples(300)
@given(slots, st.lists(st.tuples(st.integers(0, 30), st.lists(reports(), max_size=4)), max_size=6))
def test_whatever_is_reported(slots: list[BookedSlot], batches: list[tuple[int, list[PodReport]]]) -> None:
    """Times of a pod never overlap, none begins outside of its slot or ahead, no end is taken back, and a repetition
    changes nothing."""
    by_id = {slot.booking_id: slot for slot in slots}
    known: dict[tuple[str, str], Admission] = {}
    now = NINE
    for later, batch in batches:
        now += later * MINUTE
        register = Register(slots, known.values(), now)
        for report in batch:
            register.report(report)
        assert not set(register.new) & set(known)
        for key, ended in register.ended.items():
            assert known[key].ended_at is None
            assert ended.ended_at is not None
        known |= register.ended | register.new
        again = Register(slots, known.values(), now)
        for report in batch[-1:]:
            again.report(report)
        assert not again.new
        assert not again.ended
    for uid in ("u-1", "u-2"):
        rows = sorted(
            (admission for admission in known.values() if admission.pod_uid == uid),
            key=lambda admission: admission.admitted_at,
        )
        for row in rows:
            slot = by_id[row.booking_id]
            assert slot.begins <= row.admitted_at < slot.ends
            assert row.admitted_at <= now
            assert row.ended_at is None or row.admitted_at <= row.ended_at <= now
        spans = [
            (admission.admitted_at, admission.ended_at)
            for admission in rows
            if admission.ended_at != admission.admitted_at
        ]
        for (_, end), (begin, _) in pairwise(spans):
            assert end is not None
            assert end <= begin

"""Arrays: how they are written, how many elements are made, and how they end."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.jobs.arrays import MADE_AHEAD, ArrayState, changed, counts_of, shown_status, to_make
from reservation_core.domain.jobs.lifecycle import decide
from reservation_core.domain.model import PodWorkload, Reason, Reservation
from reservation_core.domain.request_terms import LARGEST_ARRAY, ArrayTerms, read_array, written_array
from reservation_core.domain.statuses import JobStatus, ReasonCode, ReservationKind

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
ARRAY = Reservation(
    id="job-7f3k9q",
    seq=1,
    kind=ReservationKind.JOB,
    user_id=1,
    user="ada",
    name=None,
    status=JobStatus.QUEUED,
    reason=Reason(ReasonCode.SUBMITTED, ""),
    gpus=1,
    gpu_type=None,
    nodes=1,
    duration=timedelta(hours=1),
    priority=0,
    workload=PodWorkload(("true",)),
    created_at=NOW,
    version=1,
    held=True,
    array=ArrayTerms(10),
)
CANCELLED = replace(ARRAY, reason=Reason(ReasonCode.CANCELLED_BY_USER, "Cancelled by ada."))


@st.composite
def states(draw: st.DrawFn) -> ArrayState:
    size = draw(st.integers(1, LARGEST_ARRAY))
    parallel = draw(st.integers(1, size))
    made = draw(st.integers(0, size))
    parts = [draw(st.integers(0, made)) for _ in range(5)]
    scale = max(1, sum(parts)) / max(1, made)
    holding, succeeded, failed, cancelled, expired = (int(part / scale) if scale > 1 else part for part in parts)
    waiting = made - holding - succeeded - failed - cancelled - expired
    return ArrayState(size, parallel, made, waiting, holding, succeeded, failed, cancelled, expired)


@given(states())
def test_what_is_made_never_passes_a_bound_and_every_element_is_counted_once(state: ArrayState) -> None:
    more = to_make(ARRAY, state)
    assert 0 <= more <= state.size - state.made
    assert more == 0 or state.waiting + more <= MADE_AHEAD
    assert more == 0 or state.made + more - state.ended <= state.parallel
    for array in (ARRAY, CANCELLED):
        counts = counts_of(array, state)
        assert counts.queued + counts.running + counts.ended == state.size
    assert to_make(CANCELLED, state) == 0
    assert to_make(replace(ARRAY, reason=Reason(ReasonCode.WAITING_FOR_JOBS, "")), state) == 0


@pytest.mark.parametrize(
    ("array", "state", "status", "code", "exit_code"),
    [
        (ARRAY, ArrayState(10, 10, 10, succeeded=10), JobStatus.SUCCEEDED, ReasonCode.COMPLETED, 0),
        (ARRAY, ArrayState(10, 10, 10, succeeded=9, failed=1, worst_exit=3), JobStatus.FAILED, "elements_failed", 3),
        (ARRAY, ArrayState(10, 10, 10, cancelled=9, expired=1), JobStatus.FAILED, "elements_failed", None),
        (ARRAY, ArrayState(10, 10, 10, succeeded=9, cancelled=1), JobStatus.CANCELLED, "elements_cancelled", None),
        (
            ARRAY,
            ArrayState(9, 9, 9, succeeded=8, cancelled=1, worst_exit=137),
            JobStatus.CANCELLED,
            "elements_cancelled",
            None,
        ),
        (CANCELLED, ArrayState(10, 10, 4, succeeded=4), JobStatus.CANCELLED, "cancelled_by_user", None),
        (CANCELLED, ArrayState(10, 10), JobStatus.CANCELLED, "cancelled_by_user", None),
    ],
)
def test_it_ends_once_all_elements_are_over(
    array: Reservation, state: ArrayState, status: JobStatus, code: str, exit_code: int | None
) -> None:
    change = decide(array, changed(array, state), NOW)
    assert change is not None
    after = change.after
    assert (after.status, after.reason.code, after.exit_code, after.finished_at) == (status, code, exit_code, NOW)
    assert decide(after, changed(after, state), NOW) is None


@pytest.mark.parametrize(
    "state",
    [ArrayState(10, 10), ArrayState(10, 10, 9, succeeded=9), ArrayState(10, 10, 10, holding=1, succeeded=9)],
)
def test_it_does_not_end_before(state: ArrayState) -> None:
    change = decide(ARRAY, changed(ARRAY, state), NOW)
    assert change is None or change.after.finished_at is None
    status = shown_status(ARRAY if change is None else change.after, counts_of(ARRAY, state))
    assert status is (JobStatus.RUNNING if state.made else JobStatus.QUEUED)


@given(st.integers(1, LARGEST_ARRAY), st.none() | st.integers(1, LARGEST_ARRAY))
def test_what_is_written_is_read(size: int, parallel: int | None) -> None:
    terms = ArrayTerms(size, parallel)
    assert read_array(written_array(terms)) == terms


@pytest.mark.parametrize(
    "text", ["", "5", "1-5", "0-", "-5", "0-9%", "0-9%0", "0-9:2", "1,3", "0-10000", "0-9 ", "0-٣"]
)
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"[A-Z]"):
        read_array(text)


@pytest.mark.parametrize(
    ("text", "way"),
    [
        ("1-10", "Write 0-9 for 10 elements, and add 1 to the index in the command."),
        ("1-5%0", "Write 0-4 for 5 elements, and add 1 to the index in the command."),
        ("5-8%2", "Write 0-3%2 for 4 elements, and add 5 to the index in the command."),
        ("10", "Write 0-9 for 10 elements."),
        ("0..9", "Write 0-9 for 10 elements."),
        ("1,3,5", "Write 0-N for N + 1 elements"),
        ("1-20000", "At most 10000 elements are allowed, as in 0-9999."),
        ("9-1", "Write 0-N for N + 1 elements"),
        ("0", "Write 0-N for N + 1 elements"),
    ],
)
def test_other_numbers_are_refused_with_the_form_of_as_many_elements(text: str, way: str) -> None:
    with pytest.raises(ValueError, match=rf"^{re.escape(f'Elements are numbered from 0 on, without gaps. {way}')}"):
        read_array(text)

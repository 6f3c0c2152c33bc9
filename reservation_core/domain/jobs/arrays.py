"""What becomes of an array as its elements start and end, and which of them are made next.

An array is one row that is never planned, and its elements are jobs. Only some elements exist while they wait: the
leader makes the next ones as others start, so that an array of any size costs the queue and the planner the same.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from reservation_core.domain.changes import CancelRequested, Decision, ElementsChanged, Record
from reservation_core.domain.event_kinds import JobEventKind
from reservation_core.domain.model import ArrayElement, Reason, Reservation
from reservation_core.domain.request_terms import ArrayCounts, element_id
from reservation_core.domain.statuses import FINAL_STATUSES, JobStatus, ReasonCode

MADE_AHEAD = 128
"""So many elements of an array wait in the queue at most."""
_STARTED = Reason(ReasonCode.RUNNING, "Its first element has started.")
_CANCELLED = frozenset({ReasonCode.CANCELLED_BY_USER, ReasonCode.CANCELLED_BY_ADMIN})


@dataclass(frozen=True, slots=True)
class ArrayState:
    """How far an array is: of `made` elements `waiting` wait, `holding` hold GPUs, and the others are over."""

    size: int
    parallel: int
    made: int = 0
    waiting: int = 0
    holding: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    expired: int = 0
    worst_exit: int | None = None

    @property
    def ended(self) -> int:
        return self.succeeded + self.failed + self.cancelled + self.expired


def element_named(array_id: str) -> str:
    """What somebody reads who asks of an array what only its elements do."""
    return f"Name one of them, such as {array_id}.0; `gpu-dev list --elements {array_id}` lists them."


def is_cancelled(array: Reservation) -> bool:
    """Whether no more elements of an array are made: it is over, or its cancellation was asked for."""
    return array.status in FINAL_STATUSES or array.reason.code in _CANCELLED


def to_make(array: Reservation, state: ArrayState) -> int:
    """How many elements are made now."""
    if is_cancelled(array) or array.reason.code is ReasonCode.WAITING_FOR_JOBS:
        return 0
    room = min(state.parallel - (state.made - state.ended), MADE_AHEAD - state.waiting)
    return max(0, min(room, state.size - state.made))


def counts_of(array: Reservation, state: ArrayState) -> ArrayCounts:
    """How many elements have which status; those that were not made wait, or were cancelled with the array."""
    unmade = state.size - state.made
    never = unmade if is_cancelled(array) else 0
    return ArrayCounts(
        queued=state.waiting + unmade - never,
        running=state.holding,
        succeeded=state.succeeded,
        failed=state.failed,
        cancelled=state.cancelled + never,
        expired=state.expired,
    )


def changed(array: Reservation, state: ArrayState) -> ElementsChanged:
    """What the state of its elements is to an array."""
    is_whole = state.ended == state.made and (state.made == state.size or is_cancelled(array))
    return ElementsChanged(counts_of(array, state), is_whole, state.worst_exit)


def follow_elements(array: Reservation, event: ElementsChanged, now: datetime) -> Decision:
    """Let an array start with its first element and end with its last one."""
    if array.array is None or array.status in FINAL_STATUSES:
        return array, ()
    counts = event.counts
    has_run = counts.running + counts.succeeded + counts.failed + counts.expired > 0
    after = replace(array, started_at=now) if has_run and array.started_at is None else array
    effects: list[Record] = []
    if after is not array:
        effects.append(Record(JobEventKind.STARTED))
    if event.whole:
        status, reason = _end(array, counts)
        codes = {JobStatus.SUCCEEDED: 0, JobStatus.FAILED: event.worst_exit}  # what was cancelled has failed at nothing
        code = codes.get(status)
        after = replace(after, status=status, reason=reason, finished_at=now, exit_code=code, held=False)
        effects.append(Record(JobEventKind(status.value), data={"elements": _words(counts)}))
    return after, tuple(effects)


def cancel_array(array: Reservation, event: CancelRequested, reason: Reason) -> Decision:
    """Ask for the end of an array: it is over once all elements are."""
    if is_cancelled(array):
        return array, ()
    return replace(array, reason=reason), (Record(JobEventKind.CANCEL_REQUESTED, event.actor),)


def unmade_element(array: Reservation, index: int) -> Reservation:
    """An element that was not made so far, as it will be, or as it would have been."""
    if array.array is None:
        raise ValueError(f"{array.id} is not an array")
    is_over = is_cancelled(array)
    reason = array.reason
    if not is_over and reason.code is not ReasonCode.WAITING_FOR_JOBS:
        reason = Reason(ReasonCode.SUBMITTED, "It enters the queue as other elements of its array start.")
    return replace(
        array,
        id=element_id(array.id, index),
        seq=array.seq + 1 + index,
        status=JobStatus.CANCELLED if is_over else JobStatus.QUEUED,
        reason=reason,
        started_at=None,
        finished_at=array.finished_at if is_over else None,
        exit_code=None,
        held=None,
        version=1,
        array=None,
        element=ArrayElement(array.id, index, array.array.size),
    )


def shown_status(array: Reservation, counts: ArrayCounts) -> JobStatus:
    """The status of an array for people; its row waits until it is over."""
    if array.status in FINAL_STATUSES:
        return array.status
    if array.reason.code in _CANCELLED:
        return JobStatus.ENDING
    return JobStatus.QUEUED if array.started_at is None and not counts.running else JobStatus.RUNNING


def shown_reason(array: Reservation, counts: ArrayCounts) -> Reason:
    """Why an array has its status, in words that count its elements."""
    if array.status in FINAL_STATUSES or array.reason.code in _CANCELLED | {ReasonCode.WAITING_FOR_JOBS}:
        return array.reason
    if array.started_at is None and not counts.running:
        return array.reason
    return Reason(ReasonCode.RUNNING, f"Of its elements: {_written(counts)}.")


def status_in_events(job: Reservation) -> tuple[JobStatus, Reason]:
    """The status and the reason of a job in its events; an array runs from its first element's start on."""
    if job.array is None:
        return job.status, job.reason
    status = shown_status(job, ArrayCounts())
    return status, _STARTED if status is JobStatus.RUNNING else job.reason


def _end(array: Reservation, counts: ArrayCounts) -> tuple[JobStatus, Reason]:
    if array.reason.code in _CANCELLED:
        return JobStatus.CANCELLED, array.reason
    total = sum(_words(counts).values())
    if not_right := counts.failed + counts.expired:
        detail = f"{not_right} of {total} elements did not succeed: {_written(counts)}."
        return JobStatus.FAILED, Reason(ReasonCode.ELEMENTS_FAILED, detail)
    if counts.cancelled:
        detail = (
            f"{counts.cancelled} of {total} elements {'was' if total == 1 else 'were'} cancelled: {_written(counts)}."
        )
        return JobStatus.CANCELLED, Reason(ReasonCode.ELEMENTS_CANCELLED, detail)
    return JobStatus.SUCCEEDED, Reason(
        ReasonCode.COMPLETED, f"All {total} elements succeeded." if total != 1 else "Its only element succeeded."
    )


def _words(counts: ArrayCounts) -> dict[str, int]:
    found = {
        "queued": counts.queued,
        "running": counts.running,
        "succeeded": counts.succeeded,
        "failed": counts.failed,
        "cancelled": counts.cancelled,
        "expired": counts.expired,
    }
    return {word: number for word, number in found.items() if number}


def _written(counts: ArrayCounts) -> str:
    return ", ".join(f"{number} {word}" for word, number in _words(counts).items())

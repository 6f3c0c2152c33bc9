"""Maintenance windows: GPUs that nobody may use for a while, and the effect on jobs and bookings that would."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import assert_never

from reservation_core.domain.bookings.asked_slots import Span
from reservation_core.domain.bookings.nouns import Booking, Why
from reservation_core.domain.bookings.windows import Fate, WindowStatus
from reservation_core.domain.changes import SYSTEM
from reservation_core.domain.errors import AlreadyFinalError, CalendarConflictError
from reservation_core.domain.event_kinds import NodeEventKind
from reservation_core.domain.model import Reservation
from reservation_core.domain.policy.quota_windows import whole_minute
from reservation_core.domain.statuses import BookingReason, BookingStatus, JobStatus, ReservationKind

FINAL_WINDOWS = frozenset({WindowStatus.ENDED, WindowStatus.CANCELLED})


@dataclass(frozen=True, slots=True)
class Affected:
    """A job or booking, and the effect on it. `ends_at` is its new end, if that changed.

    `resumes_at` is when it continues or begins later, `goes_on_as` the booking for the rest.
    """

    id: str
    kind: ReservationKind
    user: str
    fate: Fate
    ends_at: datetime | None = None
    resumes_at: datetime | None = None
    goes_on_as: str | None = None


@dataclass(frozen=True, slots=True)
class GpuAddress:
    """One GPU of a window."""

    gpu_id: int
    node: str
    index: int


@dataclass(frozen=True, slots=True)
class Window:
    """A maintenance window. `affected` is its effect; `whole_nodes` take part with all GPUs, also future ones."""

    id: str
    seq: int
    user_id: int
    user: str
    status: WindowStatus
    cards: tuple[GpuAddress, ...]
    span: Span
    reason: str
    created_at: datetime
    version: int
    affected: tuple[Affected, ...] = ()
    finished_at: datetime | None = None
    whole_nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CoveredRow:
    """An open row of the ledger that a window would overlap. `within` is the booking around it, if any."""

    reservation_id: str
    kind: ReservationKind
    planned: bool
    within: str | None
    end: datetime


@dataclass(frozen=True, slots=True)
class OverlappedReservations:
    """Reservations that overlap a window: jobs with a planned slot, jobs with pods, and bookings."""

    slots: tuple[str, ...]
    jobs: tuple[str, ...]
    bookings: tuple[str, ...]


def in_the_way(taken: Iterable[CoveredRow]) -> OverlappedReservations:
    """Sort the overlapped rows. Raises CalendarConflictError for another window: two can't overlap."""
    slots: set[str] = set()
    jobs: set[str] = set()
    bookings: set[str] = set()
    for row in taken:
        match row.kind:
            case ReservationKind.JOB:
                (slots if row.planned else jobs).add(row.reservation_id)
            case ReservationKind.BOOKING:
                bookings.add(row.reservation_id)
            case ReservationKind.MAINTENANCE:
                raise CalendarConflictError(
                    f"Some of these GPUs are in the window {row.reservation_id} until {row.end:%Y-%m-%dT%H:%M:%SZ}. "
                    "Leave them out, take another time, or end that window first."
                )
            case _:
                assert_never(row.kind)
    return OverlappedReservations(tuple(sorted(slots)), tuple(sorted(jobs)), tuple(sorted(bookings)))


def job_fate(before: Reservation, after: Reservation, *, runs_again: bool = False) -> Affected | None:
    """The effect of a drain on a job that then `runs_again` or not; None if it has no visible one."""
    if after.status is JobStatus.ENDING and before.status is not JobStatus.ENDING:
        again = after.outcome is JobStatus.QUEUED or runs_again
        return Affected(before.id, ReservationKind.JOB, before.user, Fate.QUEUED_AGAIN if again else Fate.ENDED)
    if after.status is JobStatus.ENDING:
        return None
    return Affected(before.id, ReservationKind.JOB, before.user, Fate.ENDS_EARLIER, after.ends_at or after.range_end)


@dataclass(frozen=True, slots=True)
class WindowChange:
    """A change of a window, the kind of its event, and whether its GPUs become free."""

    before: Window
    after: Window
    kind: NodeEventKind
    actor: str
    at: datetime
    gives_back: bool


def due_window_change(window: Window, now: datetime) -> WindowChange | None:
    """The due change: the window begins or ends. A window that was missed entirely only ends."""
    if window.status in FINAL_WINDOWS:
        return None
    if now >= window.span.end:
        after = replace(window, status=WindowStatus.ENDED, finished_at=now)
        return WindowChange(window, after, NodeEventKind.MAINTENANCE_ENDED, SYSTEM, now, gives_back=True)
    if window.status is WindowStatus.CONFIRMED and now >= window.span.start:
        after = replace(window, status=WindowStatus.ACTIVE)
        return WindowChange(window, after, NodeEventKind.MAINTENANCE_STARTED, SYSTEM, now, gives_back=False)
    return None


def taken_back(window: Window, actor: str, now: datetime) -> WindowChange:
    """Cancel a window: an active one ends now. Raises AlreadyFinalError."""
    match window.status:
        case WindowStatus.CONFIRMED:
            after = replace(window, status=WindowStatus.CANCELLED, finished_at=now)
            return WindowChange(window, after, NodeEventKind.MAINTENANCE_CANCELLED, actor, now, gives_back=True)
        case WindowStatus.ACTIVE:
            after = replace(window, status=WindowStatus.ENDED, finished_at=now)
            return WindowChange(window, after, NodeEventKind.MAINTENANCE_ENDED, actor, now, gives_back=True)
        case WindowStatus.ENDED | WindowStatus.CANCELLED:
            raise AlreadyFinalError(f"{window.id} is over ({window.status.value}); there is nothing to undo.")
        case _:
            assert_never(window.status)


def booking_fate(before_status: BookingStatus, span: Span, at: datetime, now: datetime) -> Fate:
    """The fate of a booking that gets no other GPUs and must be gone by `at`."""
    if at > max(span.start, now):
        return Fate.ENDS_EARLIER
    return Fate.ENDED if before_status is BookingStatus.ACTIVE else Fate.CANCELLED


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a booking around a window: it may last until `cut`, and `after` is the time after the window."""

    cut: datetime
    after: Span | None


def split_booking(booked: Span, window: Span) -> Parts:
    """Split a booking at a window. Bookings have whole minutes, so the rest begins at the first whole one."""
    resumes = whole_minute(window.end)
    after = Span(max(resumes, booked.start), booked.end) if resumes < booked.end else None
    return Parts(max(window.start.replace(second=0, microsecond=0), booked.start), after)


def rest_of(booking: Booking, span: Span, booking_id: str, why: str, fate: Fate, now: datetime) -> Booking:
    """A booking for the rest of another one, in no series; `fate` is what happens to the original.

    It gets the workload only if that never started: the original is cancelled and had not begun.
    """
    has_had_its_turn = fate is not Fate.CANCELLED or booking.started_job is not None
    times = " to ".join(f"{at:%Y-%m-%dT%H:%M:%SZ}" for at in (span.start, span.end))
    return Booking(
        id=booking_id,
        seq=0,
        user_id=booking.user_id,
        user=booking.user,
        title=booking.title,
        project=booking.project,
        status=BookingStatus.CONFIRMED,
        why=Why(BookingReason.BOOKED, f"Booked from {times}: what is left of {booking.id}. {why}"),
        wanted=booking.wanted,
        span=span,
        workload=None if has_had_its_turn else booking.workload,
        created_at=now,
        version=1,
    )

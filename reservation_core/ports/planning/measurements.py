"""Measurements for metrics and simulations."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from reservation_core.domain.bookings.asked_slots import Span
from reservation_core.domain.bookings.nouns import Wanted
from reservation_core.domain.model import Preemption
from reservation_core.domain.statuses import JobStatus, ReservationKind


@dataclass(frozen=True, slots=True)
class FinishedJob:
    """A finished job, with the event of its end. One that ran more than once has `started_at` of its last run."""

    event_id: int
    status: JobStatus
    created_at: datetime
    first_started_at: datetime | None
    started_at: datetime | None
    finished_at: datetime


@dataclass(frozen=True, slots=True)
class JudgedPredictions:
    """Jobs that started and had a predicted start: how many, and how many of them started by their p50 and p90."""

    starts: int
    by_p50: int
    by_p90: int


@dataclass(frozen=True, slots=True)
class CalendarCount:
    """How often something happened to one kind of reservation."""

    kind: str
    of: ReservationKind
    count: int


@dataclass(frozen=True, slots=True)
class PastJob:
    """A job as it was requested, and when it ran; times are None that have not come."""

    seq: int
    user_id: int
    gpus: int
    nodes: int
    gpu_type: str | None
    priority: int
    project: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    duration: timedelta
    in_booking: bool
    terms: Preemption


@dataclass(frozen=True, slots=True)
class PastBooking:
    """A booking as it was requested. It had GPUs from `made_at` to `until`: its end, unless it was given up before."""

    id: str
    user_id: int
    project: str | None
    wanted: Wanted
    span: Span
    made_at: datetime
    until: datetime

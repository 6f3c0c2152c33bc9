"""Bookings over REST: creating, changing and cancelling them, free slots, and availability over time."""

from datetime import UTC, timedelta, tzinfo
from typing import Annotated, Literal

from pydantic import Field, model_validator

from reservation_core.contracts.base import (
    MAX_GPUS_PER_NODE,
    MAX_NODES,
    BrokenRule,
    CostOut,
    Duration,
    GpuTypeName,
    Line,
    ProjectName,
    ResourcesOut,
    Slot,
    Text,
    Time,
    Wire,
    with_example,
)
from reservation_core.contracts.jobs import Workload, WorkloadSpec
from reservation_core.domain.bookings.asked_slots import Span, slot_faults, time_faults
from reservation_core.domain.bookings.recurrences import Occurrence, RecurrenceError, asked_dates
from reservation_core.domain.statuses import BookingReason, BookingStatus, RequestVerdict
from reservation_core.domain.wall_times import WALL_TIME, instant_of, read_time, zone_of

MAX_RULE = 1000

WallTime = Annotated[
    str,
    Field(
        strict=True,
        max_length=40,
        # For clients only: `read_time` does the check, with a better message.
        json_schema_extra={"pattern": WALL_TIME},
        description="RFC 3339, or a local time without offset together with `time_zone`. Whole minutes.",
        examples=["2030-01-31T09:00:00+01:00"],
    ),
]
TimeZoneName = Annotated[
    str, Field(strict=True, min_length=1, max_length=64, description="An IANA name.", examples=["Europe/Stockholm"])
]
NodeName = Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$")]
Title = Annotated[Line, Field(min_length=1, max_length=200)]
Gpus = Annotated[int, Field(strict=True, ge=1, le=MAX_GPUS_PER_NODE)]
Nodes = Annotated[int, Field(strict=True, ge=1, le=MAX_NODES)]


class Recurrence(Wire):
    """A series: an RRULE (RFC 5545) with COUNT or UNTIL, and what to do with dates that have no free GPUs."""

    rrule: Annotated[Text, Field(min_length=1, max_length=MAX_RULE, examples=["FREQ=WEEKLY;BYDAY=MO,WE;COUNT=8"])]
    on_conflict: Literal["fail", "skip"] = "fail"


class BookingCreate(Wire):
    """A request for a slot: `gpus` GPUs of one type on each of `nodes` nodes, from `start` to `end` or for `duration`.

    `wait`: join the waitlist if nothing is free; `auto_accept`: book what becomes free at once, without an offer.
    `workload` is submitted as a job of the booking when the booking begins.
    """

    model_config = with_example(
        gpus=2,
        gpu_type="h100",
        start="2030-01-31T09:00",
        time_zone="Europe/Stockholm",
        duration="PT4H",
        title="thesis runs",
    )

    gpus: Gpus
    gpu_type: GpuTypeName | None = None
    nodes: Nodes = 1
    node: NodeName | None = None
    start: WallTime
    end: WallTime | None = None
    duration: Duration | None = None
    time_zone: TimeZoneName | None = None
    title: Title | None = None
    project: ProjectName | None = None
    workload: Workload | None = None
    recurrence: Annotated[Text, Field(min_length=1, max_length=MAX_RULE)] | Recurrence | None = None
    wait: Annotated[bool, Field(strict=True)] = False
    auto_accept: Annotated[bool, Field(strict=True)] = False

    @model_validator(mode="after")
    def _check_consistency(self) -> "BookingCreate":
        faults: list[str] = []
        if (self.end is None) == (self.duration is None):
            faults.append("give either `end` or `duration`")
        if self.node is not None and self.nodes > 1:
            faults.append("`node` names one node: leave it out with `nodes` greater than 1")
        if self.wait and self.recurrence is not None:
            faults.append("a series can't wait: leave `wait` out, or book its dates one by one")
        if self.auto_accept and not self.wait:
            faults.append("`auto_accept` needs `wait`: add `wait`, or leave `auto_accept` out")
        if not faults:
            faults = slot_faults(self.start, self.end, self.duration, self.time_zone)
        if not faults and self.recurrence is not None:
            try:
                self.dates()
            except RecurrenceError as error:
                faults.append(f"recurrence: {error}")
        if faults:
            raise ValueError("; ".join(faults))
        return self

    @property
    def zone(self) -> tzinfo | None:
        """The time zone that `time_zone` names."""
        return None if self.time_zone is None else zone_of(self.time_zone)

    @property
    def span(self) -> Span:
        """The slot (UTC); of a series the first one."""
        start = instant_of(read_time(self.start), self.zone)
        if self.duration is not None:
            return Span(start, start + self.duration)
        return Span(start, instant_of(read_time(self.end or ""), self.zone))

    @property
    def series_zone(self) -> tzinfo:
        """The zone that a series is expanded in: `time_zone`, else the offset of `start`."""
        return self.zone or read_time(self.start).tzinfo or UTC

    def dates(self) -> list[Occurrence]:
        """The dates of the series; empty without a recurrence. Raises RecurrenceError."""
        if self.series is None:
            return []
        return asked_dates(self.series.rrule, self.start, self.end, self.duration, self.time_zone)

    @property
    def series(self) -> Recurrence | None:
        """The recurrence, also when given as an RRULE alone."""
        return Recurrence(rrule=self.recurrence) if isinstance(self.recurrence, str) else self.recurrence


class BookingChange(Wire):
    """Changes to a booking. Fields left out stay; `start` alone moves the booking; `node: null` unpins it."""

    title: Title | None = None
    start: WallTime | None = None
    end: WallTime | None = None
    duration: Duration | None = None
    time_zone: TimeZoneName | None = None
    node: NodeName | None = None

    @model_validator(mode="after")
    def _check_consistency(self) -> "BookingChange":
        faults: list[str] = []
        if not self.model_fields_set - {"time_zone"}:
            faults.append("name at least one of title, start, end, duration and node")
        faults += [
            f"{name}: can't be null; leave it out to keep what is"
            for name in ("start", "end", "duration", "time_zone")
            if name in self.model_fields_set and getattr(self, name) is None
        ]
        if self.end is not None and self.duration is not None:
            faults.append("give either `end` or `duration`")
        faults += time_faults(self.time_zone, self.duration, start=self.start, end=self.end)
        if faults:
            raise ValueError("; ".join(faults))
        return self

    def span_from(self, now: Span) -> Span:
        """The requested slot, given the current one. Its end may be before its start."""
        zone = None if self.time_zone is None else zone_of(self.time_zone)
        start = now.start if self.start is None else instant_of(read_time(self.start), zone)
        if self.end is not None:
            return Span(start, instant_of(read_time(self.end), zone))
        if self.duration is not None:
            return Span(start, start + self.duration)
        return Span(start, now.end if self.start is None else start + now.length)


BookedShare = Annotated[
    ResourcesOut | None,
    Field(description="The share of each node that its GPUs are, on the smallest one. Null where it is not known."),
]


class BookingReasonOut(Wire):
    """Why a booking has its status: a stable code and a sentence."""

    code: BookingReason
    detail: str


class BookedCards(Wire):
    """The GPUs of a booking on one node."""

    node: str
    gpu_indices: list[int]
    gpu_uuids: list[str | None]


class BookingOut(Wire):
    """A booking. Everybody sees the time and GPUs of every booking, and by the operator's choice (GPU_DEV_HOLDERS) its
    owner; the other fields of other people's bookings are null or empty."""

    id: str
    title: str | None
    user: str | None
    project: str | None
    status: BookingStatus
    reason: BookingReasonOut
    gpus: int
    gpu_type: str | None
    nodes: int
    node: str | None
    start: Time
    end: Time
    duration: timedelta
    created_at: Time
    series_id: str | None
    allocations: list[BookedCards]
    workload: WorkloadSpec | None
    jobs: list[str]
    used_at: Time | None
    release_at: Time | None
    offer_until: Time | None
    waits_until: Time | None
    auto_accept: bool
    resources: BookedShare = None


class SkippedDate(Wire):
    """A date of a series that was not booked. `start` and `end` are null where its local time does not exist."""

    local_start: str
    start: Time | None
    end: Time | None
    broken_rules: list[BrokenRule]
    nearest_slots: list[Slot]


class BookingSeries(Wire):
    """The bookings of a series, in order, and the dates that were skipped."""

    series_id: str
    items: list[BookingOut]
    skipped: list[SkippedDate]


class BookingVerdict(Wire):
    """The booking that a dry run would create or change; it has no id and is not stored."""

    verdict: Annotated[
        RequestVerdict, Field(description="Whether it begins at once, or is accepted for later. A refusal is an error.")
    ]
    status: BookingStatus
    reason: BookingReasonOut
    title: str | None
    project: str | None
    gpus: int
    gpu_type: str | None
    nodes: int
    node: str | None
    start: Time
    end: Time
    duration: timedelta
    allocations: list[BookedCards]
    waits_until: Time | None
    cost: Annotated[
        CostOut | None,
        Field(description="The cost of its whole duration; null without a price, and while the type is open."),
    ] = None
    resources: BookedShare = None


class SeriesVerdict(Wire):
    """The bookings that a dry run of a series would create, in order, and the dates that would be skipped.

    `costs` are of all its bookings: one for each unit, none where nothing has a price.
    """

    items: list[BookingVerdict]
    skipped: list[SkippedDate]
    costs: list[CostOut] = Field(default_factory=list)


class FreeSlotOut(Wire):
    """A free slot on GPUs of one type: any start from `start` to `latest_start` is possible."""

    gpu_type: str
    start: Time
    end: Time
    latest_start: Time


class TypeAvailability(Wire):
    """`gpus`: how many GPUs of a type exist; `free`: how many are free during each whole step."""

    gpu_type: str
    gpus: int
    free: list[int]


class Availability(Wire):
    """Free GPUs over time: step number `i` is [start + i * step, start + (i + 1) * step); the last is cut at `end`."""

    start: Time
    end: Time
    step: timedelta
    items: list[TypeAvailability]


class FeedCreated(Wire):
    """The private path of a user's calendar feed on this server; null when the response is repeated.

    The feed expires with the token that created it; `expires_at` null: that token does not expire.
    """

    path: str | None
    created_at: Time
    expires_at: Time | None = None

"""The wire of bookings: what is booked, moved and cancelled, the slots that are free, and how much is free when."""

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from reservation_core.contracts.base import (
    MAX_GPUS_PER_NODE,
    MAX_NODES,
    BrokenRule,
    Duration,
    GpuTypeName,
    Line,
    ProjectName,
    Slot,
    Text,
    Time,
    Wire,
)
from reservation_core.contracts.jobs import Workload
from reservation_core.domain.bookings.nouns import LONGEST_BOOKING, BookingReason, Span
from reservation_core.domain.bookings.recurrences import Occurrence, RecurrenceError, occurrences
from reservation_core.domain.model import BookingStatus
from reservation_core.domain.wall_times import WALL_TIME, WallTimeError, instant_of, read_time, zone_of

MAX_RULE = 1000

WallTime = Annotated[
    str,
    Field(
        strict=True,
        max_length=40,
        # Told to programs, and not asked here: `read_time` refuses in words.
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


def _instant(value: object) -> object:
    if not isinstance(value, str):
        return value
    found = read_time(value)
    if found.tzinfo is None:
        raise WallTimeError("must have an offset, such as …T08:00:00Z (write + as %2B in an address)")
    return found.astimezone(UTC)


Instant = Annotated[
    datetime, BeforeValidator(_instant), WithJsonSchema({"type": "string", "format": "date-time", "maxLength": 40})
]
"""A time with its offset, as parameters in an address have it."""


class Recurrence(Wire):
    """A series: an RRULE (RFC 5545) with COUNT or UNTIL, and what to do with dates that can't be had."""

    rrule: Annotated[Text, Field(min_length=1, max_length=MAX_RULE, examples=["FREQ=WEEKLY;BYDAY=MO,WE;COUNT=8"])]
    on_conflict: Literal["fail", "skip"] = "fail"


class BookingCreate(Wire):
    """A request for a slot: `gpus` cards of one type on each of `nodes` nodes, from `start` to `end` or for `duration`.

    `wait`: with nothing free it goes on the waitlist; `auto_accept`: what is then freed for it is booked at once
    instead of being offered. `workload` is submitted as a job of the booking when it begins.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "gpus": 2,
                    "gpu_type": "h100",
                    "start": "2030-01-31T09:00",
                    "time_zone": "Europe/Stockholm",
                    "duration": "PT4H",
                    "title": "thesis runs",
                }
            ]
        }
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
    def _hangs_together(self) -> "BookingCreate":
        wrong: list[str] = []
        if (self.end is None) == (self.duration is None):
            wrong.append("give either `end` or `duration`")
        if self.node is not None and self.nodes > 1:
            wrong.append("`node` names one node: leave it out with `nodes` greater than 1")
        if self.wait and self.recurrence is not None:
            wrong.append("a series can't wait: leave `wait` out, or book its dates one by one")
        if self.auto_accept and not self.wait:
            wrong.append("`auto_accept` is for requests that `wait`")
        if not wrong:
            wrong += _wrong_times(self)
        if not wrong and self.recurrence is not None:
            try:
                self.dates()
            except RecurrenceError as error:
                wrong.append(f"recurrence: {error}")
        if wrong:
            raise ValueError("; ".join(wrong))
        return self

    @property
    def zone(self) -> tzinfo | None:
        """The zone of `time_zone`."""
        return None if self.time_zone is None else zone_of(self.time_zone)

    @property
    def span(self) -> Span:
        """The slot (UTC), of a series the first."""
        start = instant_of(read_time(self.start), self.zone)
        if self.duration is not None:
            return Span(start, start + self.duration)
        return Span(start, instant_of(read_time(self.end or ""), self.zone))

    @property
    def series_zone(self) -> tzinfo:
        """In which zone a series is expanded: `time_zone`, else the offset that `start` was written with."""
        return self.zone or read_time(self.start).tzinfo or UTC

    def dates(self) -> list[Occurrence]:
        """The dates of the series. Raises RecurrenceError; without a recurrence there are none."""
        if self.series is None:
            return []
        span, zone = self.span, self.series_zone
        clocks = [moment.astimezone(zone).replace(tzinfo=None, fold=0) for moment in (span.start, span.end)]
        # By the clock on the wall when the end was given by it, else by how long it lasts.
        wall_length = None if self.end is None else clocks[1] - clocks[0]
        return occurrences(self.series.rrule, span, zone, wall_length)

    @property
    def series(self) -> Recurrence | None:
        """The recurrence, however short it was written."""
        return Recurrence(rrule=self.recurrence) if isinstance(self.recurrence, str) else self.recurrence


def _wrong_times(request: "BookingCreate") -> list[str]:
    wrong: list[str] = []
    try:
        zone = request.zone
    except WallTimeError as error:
        return [f"time_zone: {error}"]
    for name, text in (("start", request.start), ("end", request.end)):
        try:
            if text is not None:
                instant_of(read_time(text), zone)
        except WallTimeError as error:
            wrong.append(f"{name}: {error}")
    if request.duration is not None and request.duration % timedelta(minutes=1):
        wrong.append("duration: must be whole minutes")
    if wrong:
        return wrong
    span = request.span
    if span.length <= timedelta(0):
        return ["end: must be after `start`"]
    if span.length > LONGEST_BOOKING:
        return [f"end: at most {LONGEST_BOOKING.days} days after `start`"]
    return []


class BookingChange(Wire):
    """What to change of a booking; what is left out stays. `start` alone moves it; `node: null` takes the pin away."""

    title: Title | None = None
    start: WallTime | None = None
    end: WallTime | None = None
    duration: Duration | None = None
    time_zone: TimeZoneName | None = None
    node: NodeName | None = None

    @model_validator(mode="after")
    def _hangs_together(self) -> "BookingChange":
        wrong: list[str] = []
        if not self.model_fields_set - {"time_zone"}:
            wrong.append("name at least one of title, start, end, duration and node")
        wrong += [
            f"{name}: can't be null; leave it out to keep what is"
            for name in ("start", "end", "duration", "time_zone")
            if name in self.model_fields_set and getattr(self, name) is None
        ]
        if self.end is not None and self.duration is not None:
            wrong.append("give either `end` or `duration`")
        try:
            zone = None if self.time_zone is None else zone_of(self.time_zone)
            for name, text in (("start", self.start), ("end", self.end)):
                try:
                    if text is not None:
                        instant_of(read_time(text), zone)
                except WallTimeError as error:
                    wrong.append(f"{name}: {error}")
        except WallTimeError as error:
            wrong.append(f"time_zone: {error}")
        if self.duration is not None and self.duration % timedelta(minutes=1):
            wrong.append("duration: must be whole minutes")
        if wrong:
            raise ValueError("; ".join(wrong))
        return self

    def span_from(self, now: Span) -> Span:
        """The slot it asks for, given the one there is. It may be no slot at all (its end before its start)."""
        zone = None if self.time_zone is None else zone_of(self.time_zone)
        start = now.start if self.start is None else instant_of(read_time(self.start), zone)
        if self.end is not None:
            return Span(start, instant_of(read_time(self.end), zone))
        if self.duration is not None:
            return Span(start, start + self.duration)
        return Span(start, now.end if self.start is None else start + now.length)


class BookingReasonOut(Wire):
    """Why a booking is as it is: a stable code and a sentence."""

    code: BookingReason
    detail: str


class BookedCards(Wire):
    """The cards of a booking on one node."""

    node: str
    gpu_indices: list[int]
    gpu_uuids: list[str | None]


class BookingOut(Wire):
    """A booking. Of other people's, everybody sees when it is and which cards, and by the operator's choice
    (GPU_DEV_HOLDERS) whose; title, project, workload, jobs and the rest are null or empty."""

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
    workload: Workload | None
    jobs: list[str]
    used_at: Time | None
    release_at: Time | None
    offer_until: Time | None
    waits_until: Time | None
    auto_accept: bool


class SkippedDate(Wire):
    """A date of a series that was not booked. `start` and `end` are null where its local time does not exist."""

    local_start: str
    start: Time | None
    end: Time | None
    broken_rules: list[BrokenRule]
    nearest_slots: list[Slot]


class BookingSeries(Wire):
    """The bookings of a series, in order, and the dates that were left out."""

    series_id: str
    items: list[BookingOut]
    skipped: list[SkippedDate]


class BookingVerdict(Wire):
    """What a booking would be, had it been made or changed: it has no id, and nothing is kept for it."""

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


class SeriesVerdict(Wire):
    """What the bookings of a series would be, in order, and the dates that would be left out."""

    items: list[BookingVerdict]
    skipped: list[SkippedDate]


class FreeSlotOut(Wire):
    """A time that would do on cards of one type: any start from `start` to `latest_start` does."""

    gpu_type: str
    start: Time
    end: Time
    latest_start: Time


class TypeAvailability(Wire):
    """`gpus`: how many cards of a type there are; `free`: how many can be booked for the whole of each step."""

    gpu_type: str
    gpus: int
    free: list[int]


class Availability(Wire):
    """Free cards over time: step number `i` is [start + i * step, start + (i + 1) * step); the last is cut at `end`."""

    start: Time
    end: Time
    step: timedelta
    items: list[TypeAvailability]


class FeedCreated(Wire):
    """The private address of one's calendar, below the server's own; null when the answer is repeated.

    `expires_at`: it ends with the token that it was made with; null: that token has no end.
    """

    path: str | None
    created_at: Time
    expires_at: Time | None = None

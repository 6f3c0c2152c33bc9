"""The wire of the policy: rules by scope, projects, what holds for a request, usage, and who may use GPUs now."""

from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer, field_validator, model_validator

from reservation_core.contracts.base import (
    MAX_GPUS_PER_NODE,
    MAX_NODES,
    BrokenRule,
    Duration,
    GpuTypeName,
    Line,
    ProjectName,
    Text,
    Time,
    UserName,
    Wire,
)
from reservation_core.contracts.bookings import Recurrence, TimeZoneName, Title, WallTime
from reservation_core.contracts.jobs import Workload
from reservation_core.domain.bookings.nouns import LONGEST_BOOKING
from reservation_core.domain.policy.limits import LIFTABLE, UNLIMITED, Relaxation, RuleName, Rules
from reservation_core.domain.policy.usage import UsageBy
from reservation_core.domain.wall_times import WallTimeError, instant_of, read_time, zone_of

LONGEST = timedelta(days=400)
MOST_NAMED = 100
SCOPE = r"^[a-z0-9][a-z0-9._@+:,-]{0,349}$"


def _seconds(value: object) -> object:
    """Like `base.Duration`, but nothing at all and more than a year are lengths, too."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | timedelta):
        raise ValueError("must be a number of seconds or an ISO 8601 duration such as P7D")  # noqa: TRY004 - pydantic
    if isinstance(value, str) and not value.startswith(("P", "p")):
        raise ValueError("must be a number of seconds or an ISO 8601 duration such as P7D")
    if isinstance(value, int | float) and not 0 <= value < 10**9:
        raise ValueError("must be at least 0 seconds and at most 400 days")
    return value


Length = Annotated[
    timedelta, BeforeValidator(_seconds, json_schema_input_type=int | str), Field(ge=timedelta(0), le=LONGEST)
]
PositiveLength = Annotated[
    timedelta,
    BeforeValidator(_seconds, json_schema_input_type=int | str),
    Field(ge=timedelta(seconds=1), le=LONGEST),
]
Grace = Annotated[
    timedelta,
    BeforeValidator(_seconds, json_schema_input_type=int | str),
    Field(ge=timedelta(minutes=1), le=LONGEST),
]
Count = Annotated[int, Field(strict=True, ge=0, le=1_048_576)]
Bookings = Annotated[int, Field(strict=True, ge=0, le=100_000)]
Hours = Annotated[float, Field(strict=True, ge=0, le=1e9, allow_inf_nan=False)]
Priority = Annotated[int, Field(strict=True, ge=-1000, le=1000)]
NoLimit = Literal["unlimited"]


class RelaxationIn(Wire):
    """Bookings that start within this time from now are not bound by the rules that are named."""

    within: Length
    lifts: Annotated[list[RuleName], Field(min_length=1, max_length=len(LIFTABLE))]

    @field_validator("lifts")
    @classmethod
    def _can_be_lifted(cls, value: list[RuleName]) -> list[RuleName]:
        if not set(value) <= LIFTABLE:
            raise ValueError(f"only these can be lifted: {', '.join(sorted(LIFTABLE))}")
        return value


class RulesIn(Wire):
    """What one scope says. A field that is left out (or null) says nothing: a less specific scope's word holds.

    "unlimited" lifts what less specific scopes say. GPU-hours are per week from Monday 00:00 UTC.
    """

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"max_gpus": 4, "max_duration": "P7D", "max_gpu_hours_per_week": 200}]}
    )

    max_gpus: Count | NoLimit | None = None
    max_gpu_hours_per_week: Hours | NoLimit | None = None
    max_duration: PositiveLength | NoLimit | None = None
    max_advance: Length | NoLimit | None = None
    min_notice: Length | NoLimit | None = None
    max_open_bookings: Bookings | NoLimit | None = None
    cooldown: Length | NoLimit | None = None
    priority: Priority | NoLimit | None = None
    no_show_grace: Grace | NoLimit | None = None
    relaxed_if_starts_within: Annotated[list[RelaxationIn], Field(max_length=20)] | None = None
    booking_required: Annotated[bool, Field(strict=True)] | None = None

    def rules(self) -> Rules:
        """As the domain has it."""
        values: dict[str, Any] = {
            name.value: UNLIMITED if getattr(self, name.value) == "unlimited" else getattr(self, name.value)
            for name in RuleName
        }
        relaxed = self.relaxed_if_starts_within
        return Rules(
            **values,
            relaxed_if_starts_within=None
            if relaxed is None
            else tuple(Relaxation(relaxation.within, frozenset(relaxation.lifts)) for relaxation in relaxed),
            booking_required=self.booking_required,
        )

    @classmethod
    def of(cls, rules: Rules) -> "RulesIn":
        """As the wire has it."""
        values: dict[str, Any] = {
            name.value: "unlimited" if getattr(rules, name.value) is UNLIMITED else getattr(rules, name.value)
            for name in RuleName
        }
        relaxed = rules.relaxed_if_starts_within
        return cls(
            **values,
            relaxed_if_starts_within=None
            if relaxed is None
            else [
                RelaxationIn(within=relaxation.starts_within, lifts=sorted(relaxation.lifts)) for relaxation in relaxed
            ],
            booking_required=rules.booking_required,
        )


class RuleOut(Wire):
    """A scope and what it says."""

    scope: str
    user: str | None
    project: str | None
    gpu_type: str | None
    rules: RulesIn
    from_file: bool
    version: int
    changed_at: Time
    changed_by: str


class Named(Wire):
    """How many there are, and the names or ids of the first of them, in order."""

    count: int
    names: Annotated[list[str], Field(max_length=MOST_NAMED)]


class PolicyVerdict(Wire):
    """The rules as they would be, and whom they would affect: what breaks one of them and keeps all that hold now.

    Nothing would be taken from these. `running` and `bookings` stay as they are, and could not be had anew; what is
    `waiting` would never start. `broken_rules` says of each rule how many would break it.
    """

    scope: str
    rules: RulesIn
    users: Named
    projects: Named
    running: Named
    waiting: Named
    bookings: Named
    broken_rules: dict[str, int]


class ProjectCreate(Wire):
    """A new project."""

    name: ProjectName
    title: Title | None = None


class ProjectOut(Wire):
    """A project and who is in it."""

    name: str
    title: str | None
    created_at: Time
    members: list[str]


class ExplainRequest(Wire):
    """A job, or with `start` a booking, as it would be asked for; nothing is kept of it. What no rule looks at is taken
    and ignored. Administrators may ask for another `user`."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"gpus": 4, "gpu_type": "h100", "start": "2030-01-31T09:00:00Z", "duration": "PT8H"}]
        }
    )

    gpus: Annotated[int, Field(strict=True, ge=1, le=MAX_GPUS_PER_NODE)]
    gpu_type: GpuTypeName | None = None
    nodes: Annotated[int, Field(strict=True, ge=1, le=MAX_NODES)] = 1
    duration: Duration | None = None
    start: WallTime | None = None
    end: WallTime | None = None
    time_zone: TimeZoneName | None = None
    priority: Annotated[int, Field(strict=True, ge=-100, le=100)] = 0
    project: ProjectName | None = None
    user: UserName | None = None
    name: Annotated[Line, Field(min_length=1, max_length=200)] | None = None
    title: Title | None = None
    node: Annotated[Line, Field(min_length=1, max_length=253)] | None = None
    workload: Workload | None = None
    booking_id: Annotated[Line, Field(min_length=1, max_length=64)] | None = None
    recurrence: Annotated[Text, Field(min_length=1, max_length=1000)] | Recurrence | None = None
    wait: Annotated[bool, Field(strict=True)] = False
    auto_accept: Annotated[bool, Field(strict=True)] = False

    @model_validator(mode="after")
    def _hangs_together(self) -> "ExplainRequest":
        if (self.end is None) == (self.duration is None):
            raise ValueError("give either `end` or `duration`")
        if self.end is not None and self.start is None:
            raise ValueError("`end` is of a booking, which has a `start`")
        wrong = self._wrong_times()
        if wrong is not None:
            raise ValueError(wrong)
        return self

    def _wrong_times(self) -> str | None:
        try:
            self._zone()
        except WallTimeError as error:
            return f"time_zone: {error}"
        for name, text in (("start", self.start), ("end", self.end)):
            try:
                if text is not None:
                    self._instant(text)
            except WallTimeError as error:
                return f"{name}: {error}"
        if self.start is not None and self.length % timedelta(minutes=1):
            return "duration: must be whole minutes"
        if self.length <= timedelta(0):
            return "end: must be after `start`"
        return f"end: at most {LONGEST_BOOKING.days} days after `start`" if self.length > LONGEST_BOOKING else None

    @property
    def starts_at(self) -> datetime | None:
        """The start of a booking (UTC)."""
        return None if self.start is None else self._instant(self.start)

    @property
    def length(self) -> timedelta:
        """How long it would be."""
        if self.duration is not None:
            return self.duration
        return self._instant(self.end or "") - self._instant(self.start or "")

    def _zone(self) -> tzinfo | None:
        return None if self.time_zone is None else zone_of(self.time_zone)

    def _instant(self, text: str) -> datetime:
        return instant_of(read_time(text), self._zone()).astimezone(UTC)


class RuleBroken(BrokenRule):
    """A rule that a request would break. `possible_from`: from which start on it would hold; `ask_from`: from when on
    the same request can be made; null where neither helps."""

    possible_from: Time | None
    ask_from: Time | None


class LimitOut(Wire):
    """A limit that holds for the request, and where it comes from. `value` null is without limit.

    `used` is what counts against it already: GPUs at the fullest moment, GPU-hours in the fullest week, or open
    bookings; null where nothing does.
    """

    rule: str
    value: int | float | str | bool | None
    used: int | float | None
    scope: str


class Explanation(Wire):
    """May it be, and if not, why, and when? `possible_from` is the earliest start at which every rule holds; null when
    there is none. Whether GPUs are free then is another question (see `GET /v1/bookings/slots`)."""

    allowed: bool
    kind: Literal["job", "booking"]
    broken_rules: list[RuleBroken]
    possible_from: Time | None
    limits: list[LimitOut]
    exceptions: list[RelaxationIn]


def _seconds_out(value: Decimal) -> float:
    return float(value)


GpuSeconds = Annotated[Decimal, PlainSerializer(_seconds_out, return_type=float, when_used="json")]


class UsageLineOut(Wire):
    """GPU-seconds (exact to the microsecond) and the same in hours. `key` is null for what was for no project."""

    key: str | None
    held_gpu_s: GpuSeconds
    used_gpu_s: GpuSeconds
    idle_gpu_s: GpuSeconds
    wasted_gpu_s: GpuSeconds
    held_gpu_hours: float
    used_gpu_hours: float
    idle_gpu_hours: float
    wasted_gpu_hours: float


class UsageOut(Wire):
    """Usage in [start, end). `total` is the sum over all pages."""

    by: UsageBy
    start: Time
    end: Time
    items: list[UsageLineOut]
    total: UsageLineOut
    next_cursor: str | None


class UsageSeriesLineOut(Wire):
    """GPU-hours of each step. `key` is null for what was for no project."""

    key: str | None
    held_gpu_hours: list[float]
    used_gpu_hours: list[float]
    wasted_gpu_hours: list[float]


class UsageSeriesOut(Wire):
    """Usage step by step: step number `i` is [start + i * step, start + (i + 1) * step); the last is cut at `end`."""

    by: UsageBy
    start: Time
    end: Time
    step: timedelta
    items: list[UsageSeriesLineOut]
    next_cursor: str | None

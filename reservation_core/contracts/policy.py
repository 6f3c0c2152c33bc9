"""The policy over REST: rules by scope, projects, explanations and usage."""

from datetime import datetime, timedelta
from decimal import Decimal
from operator import not_
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainSerializer, field_validator, model_validator

from reservation_core.contracts.base import (
    MAX_NODES,
    BrokenRule,
    CostOut,
    Duration,
    GpuTypeName,
    JobGpus,
    Line,
    Place,
    ProjectName,
    ResourcesAsked,
    Text,
    Time,
    UserName,
    Wire,
    duration_reader,
    require_whole_seconds,
    with_example,
)
from reservation_core.contracts.bookings import (
    BookingCreate,
    Recurrence,
    TimeZoneName,
    Title,
    WallTime,
)
from reservation_core.contracts.job_terms.dependencies import JobDependency
from reservation_core.contracts.jobs import EstimatedStart, JobSubmit, SoonerRequest, Workload
from reservation_core.domain.bookings.asked_slots import length_faults, time_faults
from reservation_core.domain.gpu_use.idle_rules import LEAST as LEAST_IDLE
from reservation_core.domain.gpu_use.idle_rules import LONGEST as LONGEST_IDLE
from reservation_core.domain.gpu_use.idle_rules import IdleRule, IdleThen
from reservation_core.domain.jobs.asked_dependencies import MOST_DEPENDENCIES
from reservation_core.domain.policy.limits import UNLIMITED, Relaxation, Rules
from reservation_core.domain.policy.nouns import LIFTABLE, QueueOrder, RuleName, UsageBy
from reservation_core.domain.policy.prices import PRICE_PATTERN, Money
from reservation_core.domain.request_terms import fault_of_cpu_job
from reservation_core.domain.statuses import RequestVerdict
from reservation_core.domain.wall_times import instant_of, read_time, zone_of

LONGEST = timedelta(days=400)
MOST_NAMED = 100

_READ = duration_reader("P7D", "must be at least 0 seconds and at most 400 days", zero=True)
Length = Annotated[timedelta, _READ, Field(ge=timedelta(0), le=LONGEST)]
PositiveLength = Annotated[timedelta, _READ, Field(ge=timedelta(seconds=1), le=LONGEST)]
Grace = Annotated[timedelta, _READ, Field(ge=timedelta(minutes=1), le=LONGEST)]
IdleTime = Annotated[timedelta, _READ, Field(ge=LEAST_IDLE, le=LONGEST_IDLE), AfterValidator(require_whole_seconds)]
Count = Annotated[int, Field(strict=True, ge=0, le=1_048_576)]
Bookings = Annotated[int, Field(strict=True, ge=0, le=100_000)]
Hours = Annotated[float, Field(strict=True, ge=0, le=1e9, allow_inf_nan=False)]
Priority = Annotated[int, Field(strict=True, ge=-1000, le=1000)]
PriceText = Annotated[str, Field(strict=True, pattern=rf"^{PRICE_PATTERN}$", examples=["2.50 EUR"])]
NoLimit = Literal["unlimited"]


class RelaxationIn(Wire):
    """The named rules don't apply to bookings that start within this time from now."""

    within: Length
    lifts: Annotated[list[RuleName], Field(min_length=1, max_length=len(LIFTABLE))]

    @field_validator("lifts")
    @classmethod
    def _check_liftable(cls, value: list[RuleName]) -> list[RuleName]:
        if not set(value) <= LIFTABLE:
            raise ValueError(f"only these can be lifted: {', '.join(sorted(LIFTABLE))}")
        return value


def _require_thousandths(value: float) -> float:
    if round(value, 3) != value:
        raise ValueError("must have at most 3 decimal places")
    return value


class IdleRuleIn(Wire):
    """A job is idle when each of its GPUs computed for less than `below` (0 to 1) of the last `window`.

    It is warned then. When it is idle for `grace` more, `then` says what follows: `release` ends it, and `requeue` puts
    it at the end of the queue (and ends a session). No sample counts as use.
    """

    below: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False), AfterValidator(_require_thousandths)] = 0.1
    window: IdleTime = timedelta(hours=1)
    grace: IdleTime = timedelta(minutes=30)
    then: IdleThen = IdleThen.WARN


class RulesIn(Wire):
    """The rules of one scope. A field that is left out (or null) inherits from less specific scopes.

    "unlimited" removes the limit of less specific scopes. GPU-hours are per week from Monday 00:00 UTC. A cost is an
    amount and its unit, such as "2.50 EUR" or "1 credit". The order of waiting jobs is for `default` or a project.
    """

    model_config = with_example(max_gpus=4, max_duration="P7D", max_gpu_hours_per_week=200)

    max_gpus: Count | NoLimit | None = None
    max_gpu_hours_per_week: Hours | NoLimit | None = None
    max_duration: PositiveLength | NoLimit | None = None
    max_advance: Length | NoLimit | None = None
    min_notice: Length | NoLimit | None = None
    max_open_bookings: Bookings | NoLimit | None = None
    cooldown: Length | NoLimit | None = None
    priority: Priority | NoLimit | None = None
    no_show_grace: Grace | NoLimit | None = None
    inactivity: Grace | NoLimit | None = None
    cost_per_gpu_hour: PriceText | None = None
    order: QueueOrder | None = None
    idle: IdleRuleIn | NoLimit | None = None
    relaxed_if_starts_within: Annotated[list[RelaxationIn], Field(max_length=20)] | None = None
    booking_required: Annotated[bool, Field(strict=True)] | None = None

    def rules(self) -> Rules:
        """Convert to the domain."""
        values: dict[str, Any] = {name.value: getattr(self, name.value) for name in RuleName}
        values = {name: UNLIMITED if value == "unlimited" else value for name, value in values.items()}
        if isinstance(self.idle, IdleRuleIn):
            values["idle"] = IdleRule(self.idle.below, self.idle.window, self.idle.grace, self.idle.then)
        relaxed = self.relaxed_if_starts_within
        if relaxed is not None:
            values["relaxed_if_starts_within"] = tuple(
                Relaxation(item.within, frozenset(item.lifts)) for item in relaxed
            )
        price = self.cost_per_gpu_hour
        values["cost_per_gpu_hour"] = None if price is None else Money.parse(price)
        return Rules(**values, booking_required=self.booking_required)

    @classmethod
    def of(cls, rules: Rules) -> "RulesIn":
        """Convert from the domain."""
        values: dict[str, Any] = {name.value: getattr(rules, name.value) for name in RuleName}
        values = {name: "unlimited" if value is UNLIMITED else value for name, value in values.items()}
        if isinstance(rules.idle, IdleRule):
            idle = rules.idle
            values["idle"] = IdleRuleIn(below=idle.below, window=idle.window, grace=idle.grace, then=idle.then)
        values["cost_per_gpu_hour"] = None if rules.cost_per_gpu_hour is None else str(rules.cost_per_gpu_hour)
        relaxed = rules.relaxed_if_starts_within
        exceptions = None
        if relaxed is not None:
            exceptions = [RelaxationIn(within=item.starts_within, lifts=sorted(item.lifts)) for item in relaxed]
        return cls(**values, relaxed_if_starts_within=exceptions, booking_required=rules.booking_required)


class RuleOut(Wire):
    """The rules of a scope, as stored."""

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
    """A count, and the names or ids of the first ones, in order."""

    count: int
    names: Annotated[list[str], Field(max_length=MOST_NAMED)]


class PolicyVerdict(Wire):
    """The effect of a dry run of rules: what would break a rule that it keeps now.

    `running` and `bookings` would continue, but would be refused if requested again; `waiting` jobs would never start.
    `broken_rules` counts the violations of each rule.
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
    name: ProjectName
    title: Title | None = None


class ProjectOut(Wire):
    name: str
    title: str | None
    created_at: Time
    members: list[str]


class ExplainRequest(Wire):
    """A job, or with `start` a booking, to check against the rules; nothing is stored. Fields that no rule reads are
    ignored. Administrators may ask for another `user`. `instead_of` names a waiting job of that user: the verdict is as
    if its GPUs and its part of the quotas were free. The budget of a token counts that job still."""

    model_config = with_example(gpus=4, gpu_type="h100", start="2030-01-31T09:00:00Z", duration="PT8H")

    gpus: JobGpus
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
    instead_of: Annotated[Line, Field(min_length=1, max_length=64)] | None = None
    after: Annotated[list[JobDependency], Field(max_length=MOST_DEPENDENCIES, default_factory=list, exclude_if=not_)]
    preemptible: Annotated[bool, Field(strict=True)] = False
    resources: ResourcesAsked | None = None

    @model_validator(mode="after")
    def _check_consistency(self) -> "ExplainRequest":
        if (self.end is None) == (self.duration is None):
            raise ValueError("give either `end` or `duration`")
        if self.end is not None and self.start is None:
            raise ValueError("`end` is of a booking, which has a `start`")
        if self.instead_of is not None and self.start is not None:
            raise ValueError("`instead_of` is of a job, which has no `start`")
        if self.gpus == 0 and self.start is not None:
            raise ValueError("gpus: a booking is of GPUs; ask for at least 1, or for a job without `start`")
        if fault := fault_of_cpu_job(
            self.gpus, self.nodes, self.gpu_type, self.booking_id, preemptible=self.preemptible
        ):
            raise ValueError(fault)
        minutes = None if self.start is None else self.duration
        faults = time_faults(self.time_zone, minutes, start=self.start, end=self.end) or length_faults(self.length)
        if faults:
            raise ValueError("; ".join(faults))
        return self

    @property
    def job(self) -> JobSubmit:
        """The job that it asks about."""
        names = (
            "name", "gpus", "gpu_type", "nodes", "priority", "booking_id", "project", "after",
            "preemptible", "resources",
        )  # fmt: skip
        workload = self.workload or Workload(command=[], env={})
        return JobSubmit(**{name: getattr(self, name) for name in names}, duration=self.length, workload=workload)

    @property
    def booking(self) -> BookingCreate:
        """The booking that it asks about. Raises ValidationError for one that can't be asked for."""
        return BookingCreate(**{name: getattr(self, name) for name in BookingCreate.model_fields})

    @property
    def starts_at(self) -> datetime | None:
        """The start of a booking (UTC)."""
        return None if self.start is None else self._instant(self.start)

    @property
    def length(self) -> timedelta:
        """The requested duration."""
        return self.duration or self._instant(self.end or "") - self._instant(self.start or "")

    def _instant(self, text: str) -> datetime:
        return instant_of(read_time(text), None if self.time_zone is None else zone_of(self.time_zone))


class RuleBroken(BrokenRule):
    """A rule that a request would break. From a start at `possible_from`, or asked again at `ask_from`, it would hold;
    null where that does not help."""

    possible_from: Time | None
    ask_from: Time | None


class LimitOut(Wire):
    """A limit that applies to the request, and its scope. `value` null is unlimited.

    `used` is the current use: GPUs at the peak, GPU-hours in the fullest week, or open bookings; null for other limits.
    """

    rule: str
    value: int | float | str | bool | None
    used: int | float | None
    scope: str


class Explanation(Wire):
    """What becomes of a request: `refused` if asking for it is answered with an error, `starts_now`, or `accepted` and
    starts later. `reasons` are what refuses it, where more may show when that is mended, or all that it waits for;
    `starts_at` is about when it starts, null where no start can be told. A series is judged by its first date.

    `allowed` says whether it breaks no rule now: a job over a quota is accepted and waits. `possible_from` is the
    earliest start at which every rule holds, or null. `GET /v1/bookings/slots` says whether GPUs are free then.
    `cost` is that of its whole duration; null without a price, within a booking, and where types that it may get differ
    in price. `estimated_start`, `queue_position` and `instead` are of a job that waits, as `POST /v1/jobs?dry_run=true`
    has them."""

    verdict: RequestVerdict
    starts_at: Time | None
    reasons: list[BrokenRule]
    estimated_start: EstimatedStart | None = None
    queue_position: Place | None = None
    instead: list[SoonerRequest] = Field(default_factory=list)

    allowed: bool
    kind: Literal["job", "booking"]
    broken_rules: list[RuleBroken]
    possible_from: Time | None
    limits: list[LimitOut]
    exceptions: list[RelaxationIn]
    cost: CostOut | None = None


GpuSeconds = Annotated[Decimal, PlainSerializer(float, return_type=float, when_used="json")]


class UsageLineOut(Wire):
    """GPU-seconds (exact to the microsecond) and GPU-hours. `key` null is use without a project.

    `costs` are of what was held, at the prices of now: one for each unit, none where nothing has a price.
    """

    key: str | None
    held_gpu_s: GpuSeconds
    used_gpu_s: GpuSeconds
    idle_gpu_s: GpuSeconds
    wasted_gpu_s: GpuSeconds
    held_gpu_hours: float
    used_gpu_hours: float
    idle_gpu_hours: float
    wasted_gpu_hours: float
    costs: list[CostOut] = Field(default_factory=list)
    utilised: Annotated[
        float | None, Field(description="The mean utilisation of GPUs while jobs had them, 0 to 1; null: no data.")
    ] = None
    memory_peak: Annotated[
        int | None, Field(description="The most memory in use on one GPU, in bytes; null: no data.")
    ] = None


class UsageOut(Wire):
    """Usage in [start, end). `total` is the sum over all pages."""

    by: UsageBy
    start: Time
    end: Time
    items: list[UsageLineOut]
    total: UsageLineOut
    next_cursor: str | None


class UsageSeriesLineOut(Wire):
    """GPU-hours of each step. `key` null is use without a project.

    `utilised` (0 to 1) is how busy the GPUs of jobs were in the step's hours that are over; null: no sample says.
    """

    key: str | None
    held_gpu_hours: list[float]
    used_gpu_hours: list[float]
    wasted_gpu_hours: list[float]
    utilised: list[float | None]


class UsageSeriesOut(Wire):
    """Usage step by step: step number `i` is [start + i * step, start + (i + 1) * step); the last is cut at `end`."""

    by: UsageBy
    start: Time
    end: Time
    step: timedelta
    items: list[UsageSeriesLineOut]
    next_cursor: str | None

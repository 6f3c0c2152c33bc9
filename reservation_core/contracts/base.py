"""What all REST messages share.

Unknown fields are refused, every field has bounds, and numbers are not read from strings.
"""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Generic, Self, TypeVar
from unicodedata import category

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
    model_validator,
)

from reservation_core.domain.request_terms import (
    LARGEST_ARRAY,
    LONGEST_SIGNAL_LEAD,
    MILLI,
    MOST_CPUS,
    MOST_MEMORY,
    MOST_RETRIES,
    ArrayTerms,
    EndSignal,
    Resources,
    Retries,
    RetryCause,
    Share,
    SignalName,
    read_bytes,
)
from reservation_core.domain.short_durations import LONGEST_DURATION
from reservation_core.domain.similar_names import FoundKind
from reservation_core.domain.statuses import ReasonCode
from reservation_core.domain.time_words import rfc3339
from reservation_core.domain.user_names import USER_NAME, folded
from reservation_core.domain.wall_times import WallTimeError, read_time

T = TypeVar("T")

MAX_GPUS_PER_NODE = 64
MAX_NODES = 256

_INVISIBLE = frozenset({"Cc", "Cs", "Zl", "Zp"})
_BIDIRECTIONAL = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def _refuse_nul(text: str) -> str:
    if "\x00" in text:
        raise ValueError("must not contain NUL characters")
    return text


def _refuse_control_characters(text: str) -> str:
    """Allow line breaks and tabs, but no other control character and none that changes the direction of text."""
    for character in text:
        if character not in "\n\t" and (category(character) in _INVISIBLE or character in _BIDIRECTIONAL):
            raise ValueError(f"must not contain the control character U+{ord(character):04X}")
    return text


def _require_one_line(text: str) -> str:
    if text.isspace():
        raise ValueError("must not be blank")
    if text.isprintable():  # nothing that is refused: most names, at one look
        return text
    if "\n" in _refuse_control_characters(_refuse_nul(text)) or "\t" in text:
        raise ValueError("must be one line without tabs")
    return text


def duration_reader(example: str, bounds: str, *, zero: bool = False) -> BeforeValidator:
    """Accept a number of seconds or ISO 8601, and nothing else that pydantic reads as a timedelta."""
    form = f"must be a number of seconds or an ISO 8601 duration such as {example}"

    def read(value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, int | float | str | timedelta):
            raise ValueError(form)  # noqa: TRY004 - pydantic
        if isinstance(value, str) and not value.startswith(("P", "p")):
            raise ValueError(form)
        if isinstance(value, int | float) and not (0 < value < 10**9 or (zero and value == 0)):
            raise ValueError(bounds)
        return value

    return BeforeValidator(read, json_schema_input_type=int | str)


def require_whole_seconds(value: timedelta) -> timedelta:
    if value.microseconds:
        raise ValueError("must be whole seconds")
    return value


def _read_instant(value: object) -> object:
    if not isinstance(value, str):
        return value
    instant = read_time(value)
    if instant.tzinfo is None:
        raise WallTimeError("must have an offset, such as …T08:00:00Z (write + as %2B in an address)")
    return instant.astimezone(UTC)


Text = Annotated[str, Field(strict=True), AfterValidator(_refuse_nul)]
Prose = Annotated[Text, AfterValidator(_refuse_control_characters)]
"""Text for people."""
Line = Annotated[str, Field(strict=True), AfterValidator(_require_one_line)]
"""One line of text for people, such as a name."""
Time = Annotated[AwareDatetime, PlainSerializer(rfc3339, return_type=str, when_used="json")]
Instant = Annotated[
    datetime, BeforeValidator(_read_instant), WithJsonSchema({"type": "string", "format": "date-time", "maxLength": 40})
]
"""A time with an offset, as URL parameters have it."""
Place = Annotated[int, Field(ge=1)]
Duration = Annotated[
    timedelta,
    duration_reader("PT4H", "must be greater than 0 seconds and at most 90 days"),
    Field(ge=timedelta(seconds=1), le=LONGEST_DURATION),
    AfterValidator(require_whole_seconds),
]
GpuTypeName = Annotated[str, Field(strict=True, pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
ExactUserName = Annotated[str, Field(strict=True, pattern=rf"^{USER_NAME}$")]
"""For names from other systems, where `Ann` and `ann` may be two people."""
UserName = Annotated[
    ExactUserName,
    BeforeValidator(lambda name: folded(name) if isinstance(name, str) else name, json_schema_input_type=str),
]
SecretName = Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
ProjectName = Annotated[str, Field(strict=True, pattern=r"^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$")]


def with_example(**fields: Any) -> ConfigDict:
    """The configuration of a message whose OpenAPI schema shows an example."""
    return ConfigDict(json_schema_extra={"examples": [fields]})


class Wire(BaseModel):
    """Base class of all REST messages."""

    model_config = ConfigDict(extra="forbid", ser_json_timedelta="iso8601", hide_input_in_errors=True, defer_build=True)


JobGpus = Annotated[
    int,
    Field(strict=True, ge=0, le=MAX_GPUS_PER_NODE, description="On each node. 0: a job with CPUs and memory alone."),
]


def _read_amount(value: object) -> object:
    amount = read_bytes(value) if isinstance(value, str) else value
    if amount is None or isinstance(amount, bool) or not isinstance(amount, int):
        raise ValueError("must be a number of bytes, or one such as 64Gi or 500M")
    return amount


def _whole_thousandths(cpus: float) -> float:
    if abs(cpus * MILLI - round(cpus * MILLI)) > _TOLERANCE or round(cpus * MILLI) == 0:
        raise ValueError("must be a number of CPUs with at most three decimals, such as 4 or 0.5")
    return round(cpus * MILLI) / MILLI


_TOLERANCE = 1e-6
Bytes = Annotated[int, BeforeValidator(_read_amount, json_schema_input_type=int | str), Field(ge=2**20, le=MOST_MEMORY)]


class ResourcesAsked(Wire):
    """CPUs and memory on each node. Without one of them a job has the share of it that its GPUs are of the node's."""

    cpus: (
        Annotated[
            float, Field(strict=True, gt=0, le=MOST_CPUS, allow_inf_nan=False), AfterValidator(_whole_thousandths)
        ]
        | None
    ) = None
    memory: Annotated[Bytes, Field(description="Bytes, or text such as `64Gi`.")] | None = None
    shm: (
        Annotated[Bytes, Field(description="The size of /dev/shm, as `memory`. It counts as memory of the job.")] | None
    ) = None

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        if self.shm is not None and self.memory is not None and self.shm > self.memory:
            raise ValueError("`shm` is a part of `memory`: ask for at least as much memory")
        if self.terms == Resources():
            raise ValueError("name `cpus`, `memory` or `shm`, or leave `resources` out")
        return self

    @property
    def terms(self) -> Resources:
        cpu_milli = None if self.cpus is None else round(self.cpus * MILLI)
        return Resources(Share(cpu_milli, self.memory), self.shm)


class ResourcesOut(Wire):
    """CPUs and memory on each node that a job asked for (null: the share that its GPUs are), or that a booking has."""

    cpus: float | None
    memory: int | None
    shm: int | None

    @classmethod
    def of(cls, asked: Resources | None) -> "ResourcesOut | None":
        """What a job asked for, if it asked for anything."""
        if asked is None:
            return None
        milli, memory = asked.share
        return cls(cpus=None if milli is None else milli / MILLI, memory=memory, shm=asked.shm_bytes)


class IdleOut(Wire):
    """The warning of a running job whose GPUs are idle, by the policy's rule `idle`."""

    since: Annotated[Time, Field(description="Since when all its GPUs are idle.")]
    warned_at: Time
    release_at: Annotated[
        Time | None, Field(description="When they go to others if they still are. Null: the rule only warns.")
    ]


class Page(Wire, Generic[T]):
    """One page of a list; `next_cursor` is null at the end."""

    items: list[T]
    next_cursor: str | None


class BrokenRule(Wire):
    code: str
    detail: str


class Slot(Wire):
    start: Time
    end: Time


class CostOut(Wire):
    """An amount (a decimal, to a millionth) of a unit, such as EUR or credits."""

    amount: Decimal
    unit: str


class Problem(Wire):
    """RFC 9457 problem details; `detail` says what to do next."""

    type: str
    title: str
    status: int
    detail: str
    instance: str | None = None
    broken_rules: list[BrokenRule] | None = None
    nearest_slots: list[Slot] | None = None


class SearchHit(Wire):
    """A thing that a search found. `id`: of nodes and users their name; `start`: of bookings."""

    kind: FoundKind
    id: str
    name: str | None
    status: str | None
    user: str | None
    start: Time | None


class SearchResult(Wire):
    """What a search found, by kind, the best of each first."""

    items: list[SearchHit]


class ReasonOut(Wire):
    """Why a job has its status: a stable code and a sentence."""

    code: ReasonCode
    detail: str


class RetriesAsked(Wire):
    """After which ends a job is queued again, and how often at most."""

    max: Annotated[int, Field(strict=True, ge=1, le=MOST_RETRIES)]
    on: Annotated[
        list[RetryCause],
        Field(
            min_length=1,
            max_length=len(RetryCause),
            default_factory=lambda: list(RetryCause),
            description="The command failed, a node or pod was lost, or others took the GPUs. All, if left out.",
        ),
    ]

    @property
    def terms(self) -> Retries:
        return Retries(self.max, frozenset(self.on))


class JobRetries(Wire):
    """After which ends a job is queued again, and how often at most."""

    max: int
    on: list[RetryCause]


class RetriesOut(JobRetries):
    """The retries of a job, and how many of them were needed so far."""

    done: int


class ArrayAsked(Wire):
    """Run the job once for each of `size` elements, which are numbered from 0."""

    size: Annotated[int, Field(strict=True, ge=1, le=LARGEST_ARRAY)]
    parallel: Annotated[
        Annotated[int, Field(strict=True, ge=1, le=LARGEST_ARRAY)] | None,
        Field(description="How many elements hold GPUs at once at most."),
    ] = None

    @property
    def terms(self) -> ArrayTerms:
        return ArrayTerms(self.size, self.parallel)


class ArrayTermsOut(Wire):
    """How many elements an array has, and how many of them hold GPUs at once at most."""

    size: int
    parallel: int | None


class JobArray(ArrayTermsOut):
    """The elements of an array, counted by status; `running` are those that hold GPUs."""

    queued: int
    running: int
    succeeded: int
    failed: int
    cancelled: int
    expired: int


class JobElement(Wire):
    """Which element of which array a job is; `index` counts from 0 to `size` - 1."""

    array: str
    index: int
    size: int


SignalLead = Annotated[
    timedelta,
    duration_reader("PT5M", "must be at least 0 seconds and at most 1 hour", zero=True),
    Field(ge=timedelta(0), le=LONGEST_SIGNAL_LEAD, description="So long before its end; 0 is at its end."),
    AfterValidator(require_whole_seconds),
]


class EndSignalAsked(Wire):
    """A signal that the command, which is the first process, gets so long before it is ended."""

    signal: SignalName
    before: SignalLead = timedelta(minutes=1)

    @property
    def terms(self) -> EndSignal:
        return EndSignal(self.signal, self.before)


class EndSignalOut(Wire):
    """The signal that a job gets so long before it is ended."""

    signal: SignalName
    before: timedelta


class PreemptionOut(Wire):
    """How a preemptible job keeps its GPUs, and how often it gave them back."""

    min_runtime: Annotated[timedelta, Field(description="How long it keeps its GPUs after a start for sure.")]
    done: Annotated[int, Field(description="How often it gave its GPUs back to others and waited again.")]
    asked_at: Annotated[
        Time | None, Field(description="Since when it is asked to end, as others need its GPUs. Null: it is not.")
    ]

"""The wire: what clients send and get over REST, and what goes through the queues. Every message carries a version.

Unknown fields are refused, every field has bounds, numbers are not read out of strings.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Generic, Literal, TypeVar
from unicodedata import category

from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer
from pydantic.functional_validators import field_validator

from reservation_core.domain.model import GpuState, JobStatus, ReasonCode, Role
from reservation_core.domain.user_names import USER_NAME, folded

T = TypeVar("T")

LONGEST_DURATION = timedelta(days=90)
MAX_GPUS_PER_NODE = 64
MAX_NODES = 256
_GPU_ENV = frozenset({"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES"})
_GANG_ENV = frozenset({"NNODES", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT"})
RESERVED_ENV = _GPU_ENV | _GANG_ENV
RESERVED_ENV_PREFIX = "GPU_DEV_"
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")

_UNSEEN = frozenset({"Cc", "Cs", "Zl", "Zp"})
_TURNING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def _clean(text: str) -> str:
    if "\x00" in text:
        raise ValueError("must not contain NUL characters")
    return text


def _harmless(text: str) -> str:
    """No control characters but line breaks and tabs, nor any that turn the order of what is read."""
    wrong = next((c for c in text if c not in "\n\t" and (category(c) in _UNSEEN or c in _TURNING)), None)
    if wrong is not None:
        raise ValueError(f"must not contain the control character U+{ord(wrong):04X}")
    return text


def _one_line(text: str) -> str:
    if "\n" in text or "\t" in text:
        raise ValueError("must be one line without tabs")
    return text


def _seconds(value: object) -> object:
    """Durations are a number of seconds or ISO 8601; nothing else that a timedelta could be read from."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | timedelta):
        raise ValueError("must be a number of seconds or an ISO 8601 duration such as PT4H")  # noqa: TRY004 - pydantic
    if isinstance(value, str) and not value.startswith(("P", "p")):
        raise ValueError("must be a number of seconds or an ISO 8601 duration such as PT4H")
    if isinstance(value, int | float) and not 0 < value < 10**9:
        raise ValueError("must be greater than 0 seconds and at most 90 days")
    return value


def _whole_seconds(value: timedelta) -> timedelta:
    if value.microseconds:
        raise ValueError("must be whole seconds")
    return value


def rfc3339(value: datetime) -> str:
    """A time as the wire has it, to the millisecond."""
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


Text = Annotated[str, Field(strict=True), AfterValidator(_clean)]
Prose = Annotated[Text, AfterValidator(_harmless)]
"""What people read."""
Line = Annotated[Prose, AfterValidator(_one_line)]
"""The same on one line: names above all."""
Time = Annotated[AwareDatetime, PlainSerializer(rfc3339, return_type=str, when_used="json")]
Place = Annotated[int, Field(ge=1)]
Duration = Annotated[
    timedelta,
    BeforeValidator(_seconds, json_schema_input_type=int | str),
    Field(ge=timedelta(seconds=1), le=LONGEST_DURATION),
    AfterValidator(_whole_seconds),
]
GpuTypeName = Annotated[str, Field(strict=True, pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
ExactUserName = Annotated[str, Field(strict=True, pattern=rf"^{USER_NAME}$")]
"""For names that come from elsewhere, where `Ann` and `ann` may be two people."""
UserName = Annotated[
    ExactUserName,
    BeforeValidator(lambda name: folded(name) if isinstance(name, str) else name, json_schema_input_type=str),
]
ProjectName = Annotated[str, Field(strict=True, pattern=r"^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$")]


class Wire(BaseModel):
    """Base of everything on the wire."""

    model_config = ConfigDict(extra="forbid", ser_json_timedelta="iso8601", hide_input_in_errors=True)


class Workload(Wire):
    """What to run. Without a command the job is a session: the GPUs are held for interactive use."""

    image: Annotated[str, Field(strict=True, min_length=1, max_length=512, pattern=r"^[!-~]+$")] | None = None
    command: Annotated[list[Annotated[Text, Field(max_length=32_768)]], Field(max_length=256, default_factory=list)]
    env: Annotated[dict[str, Annotated[Text, Field(max_length=32_768)]], Field(max_length=256, default_factory=dict)]
    working_dir: Annotated[Text, Field(min_length=1, max_length=4096, pattern=r"^/")] | None = None

    @field_validator("command")
    @classmethod
    def _command_names_a_program(cls, value: list[str]) -> list[str]:
        if value and not value[0]:
            raise ValueError("the first word must name a program")
        return value

    @field_validator("env")
    @classmethod
    def _env_is_theirs(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if not _ENV_NAME.fullmatch(name):
                raise ValueError("names must match [A-Za-z_][A-Za-z0-9_]* and have at most 128 characters")
            if name in RESERVED_ENV or name.startswith(RESERVED_ENV_PREFIX):
                raise ValueError(f"{name} is set by the server and can't be set by a job; remove it")
        return value


class JobSubmit(Wire):
    """A request for GPUs: `gpus` on each of `nodes` nodes for `duration`. In a booking `project` is the booking's."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "train",
                    "gpus": 2,
                    "gpu_type": "h100",
                    "duration": "PT4H",
                    "workload": {"command": ["python", "train.py"]},
                }
            ]
        }
    )

    name: Annotated[Line, Field(min_length=1, max_length=200)] | None = None
    gpus: Annotated[int, Field(strict=True, ge=1, le=MAX_GPUS_PER_NODE)]
    gpu_type: GpuTypeName | None = None
    nodes: Annotated[int, Field(strict=True, ge=1, le=MAX_NODES)] = 1
    duration: Duration
    workload: Workload
    priority: Annotated[int, Field(strict=True, ge=-100, le=100)] = 0
    booking_id: Annotated[Line, Field(min_length=1, max_length=64)] | None = None
    project: ProjectName | None = None


class JobExtend(Wire):
    """How much longer."""

    by: Duration


class ReasonOut(Wire):
    """Why a job is as it is: a stable code and a sentence."""

    code: ReasonCode
    detail: str


class AllocationOut(Wire):
    """The GPUs on one node."""

    node: str
    gpu_indices: list[int]
    gpu_uuids: list[str | None]
    pod: str


class Job(Wire):
    """A job as its owner sees it."""

    id: str
    name: str | None
    user: str
    status: JobStatus
    reason: ReasonOut
    gpus: int
    gpu_type: str | None
    nodes: int
    duration: timedelta
    priority: int
    created_at: Time
    queue_position: Place | None
    estimated_start_at: Time | None
    promised_start_at: Time | None = None
    started_at: Time | None
    ends_at: Time | None
    finished_at: Time | None
    exit_code: int | None
    allocations: list[AllocationOut]
    booking_id: str | None = None
    project: str | None = None


class Holder(Wire):
    """Who holds a GPU. By the operator's choice (GPU_DEV_HOLDERS), ids and names of others are null."""

    id: str | None
    user: str | None
    yours: bool


class GpuOut(Wire):
    """One card."""

    node: str
    index: int
    uuid: str | None
    gpu_type: str
    memory_bytes: int | None
    state: GpuState
    holder: Holder | None
    free_at: Time | None


class NodeOut(Wire):
    """One node."""

    name: str
    ready: bool
    schedulable: bool
    detail: str | None
    gpu_types: list[str]
    gpus: int
    free: int
    last_seen_at: Time
    labels: dict[str, str]
    zone: str | None = None
    logical_name: str | None = None
    taints: list[str] = []
    fenced_at: Time | None = None
    fenced_by: str | None = None
    cordoned_at: Time | None = None
    cordoned_by: str | None = None
    cordon_reason: str | None = None
    gpu_links: Annotated[
        list[list[str]] | None,
        Field(
            description="How its cards are joined, by index, in the words of `nvidia-smi topo -m`; null: nobody says.",
            examples=[[["X", "NV18"], ["NV18", "X"]]],
        ),
    ] = None


class QueueEntry(Wire):
    """Who waits, why, and until when."""

    id: str
    user: str
    name: str | None
    queue_position: Place | None
    reason: ReasonOut
    gpus: int
    gpu_type: str | None
    nodes: int
    duration: timedelta
    priority: int
    created_at: Time
    estimated_start_at: Time | None
    promised_start_at: Time | None = None
    project: str | None = None


class WaitingTotal(Wire):
    """How many wait for a type, without saying who."""

    gpu_type: str | None
    jobs: int
    gpus: int


class Page(Wire, Generic[T]):
    """One page of a list; `next_cursor` is null at the end."""

    items: list[T]
    next_cursor: str | None


class QueuePage(Page[QueueEntry]):
    """The waiting line, with totals over everybody's jobs."""

    totals: list[WaitingTotal]


class UserCreate(Wire):
    """A new user."""

    name: UserName
    role: Role = Role.USER


class UserOut(Wire):
    """A user."""

    name: str
    role: Role
    created_at: Time
    disabled_at: Time | None


class JobEvent(Wire):
    """One event of a job's life, as sent on its stream."""

    id: int
    at: Time
    kind: str
    actor: str
    before: str | None
    after: str | None
    reason: ReasonOut | None
    data: dict[str, Any]


class DeadLetterOut(Wire):
    """A message that could not be handled."""

    id: int
    queue: str
    enqueued_at: Time
    body: Any
    error: str
    read_count: int


class Redrive(Wire):
    """Which dead letters to send again; all when `ids` is null."""

    ids: Annotated[list[Annotated[int, Field(strict=True, ge=1, le=2**63 - 1)]], Field(max_length=1000)] | None = None


class Redriven(Wire):
    """How many were sent again."""

    count: int


class BrokenRule(Wire):
    """One rule that a request broke."""

    code: str
    detail: str


class Slot(Wire):
    """A time that would do."""

    start: Time
    end: Time


class Problem(Wire):
    """RFC 9457 problem details; `detail` says what to do next."""

    type: str
    title: str
    status: int
    detail: str
    instance: str | None = None
    broken_rules: list[BrokenRule] | None = None
    nearest_slots: list[Slot] | None = None


class JobMessage(BaseModel):
    """On `gpu_jobs`: look at this reservation again (or, with `inventory`, at the nodes). The row is the truth."""

    model_config = ConfigDict(extra="ignore", strict=True)

    v: Literal[1] = 1
    kind: Literal["submitted", "changed", "inventory"]
    id: Annotated[str, Field(max_length=64)] | None = None


class PodOperation(BaseModel):
    """On `pod_operations`: bring the cluster to what the row says, if the attempt is still the row's."""

    model_config = ConfigDict(extra="ignore", strict=True)

    v: Literal[1] = 1
    op: Literal["create", "delete", "deadline"]
    id: Annotated[str, Field(min_length=1, max_length=64)]
    attempt: Annotated[int, Field(ge=1)]

"""Jobs over REST: submitting them, their state, the queue, and their events."""

from datetime import timedelta
from operator import not_
from typing import Annotated, Self

from pydantic import Field, ValidationInfo, model_validator
from pydantic.functional_validators import field_validator

from reservation_core.contracts.base import (
    MAX_NODES,
    ArrayAsked,
    ArrayTermsOut,
    Duration,
    EndSignalAsked,
    EndSignalOut,
    GpuTypeName,
    IdleOut,
    JobArray,
    JobElement,
    JobGpus,
    JobRetries,
    Line,
    Page,
    Place,
    PreemptionOut,
    ProjectName,
    ReasonOut,
    ResourcesAsked,
    ResourcesOut,
    RetriesAsked,
    RetriesOut,
    Text,
    Time,
    Wire,
    duration_reader,
    with_example,
)
from reservation_core.contracts.job_files.secret_uses import JobSecret, JobSecretOut
from reservation_core.contracts.job_files.synced import JobSyncAsked, JobSyncOut
from reservation_core.contracts.job_terms.dependencies import AskedDependency, JobDependency, JobDependencyOut
from reservation_core.contracts.job_terms.disks import JobDiskOut, JobDisks, NoHome
from reservation_core.domain.disks.disk_uses import fault_of_uses as fault_of_disks
from reservation_core.domain.jobs.asked_dependencies import MOST_DEPENDENCIES, fault_of_dependencies
from reservation_core.domain.jobs.variables import fault_of_variable
from reservation_core.domain.request_terms import RequestChange, fault_of_cpu_job, fault_of_preemption
from reservation_core.domain.sessions.secret_uses import MOST_IN_JOB, fault_of_uses
from reservation_core.domain.short_durations import LONGEST_DURATION, written
from reservation_core.domain.statuses import JobStatus, RequestVerdict


def _is_none(value: object) -> bool:
    return value is None


class Workload(Wire):
    """What a job runs. Without a command the job is a session: it holds GPUs for interactive use."""

    image: Annotated[str, Field(strict=True, min_length=1, max_length=512, pattern=r"^[!-~]+$")] | None = None
    command: Annotated[list[Annotated[Text, Field(max_length=32_768)]], Field(max_length=256, default_factory=list)]
    env: Annotated[dict[str, Annotated[Text, Field(max_length=32_768)]], Field(max_length=256, default_factory=dict)]
    working_dir: Annotated[Text, Field(min_length=1, max_length=4096, pattern=r"^/")] | None = None

    @field_validator("command")
    @classmethod
    def _check_command(cls, value: list[str]) -> list[str]:
        if value and not value[0]:
            raise ValueError("the first word must name a program")
        return value

    @field_validator("env")
    @classmethod
    def _check_env_names(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if (fault := fault_of_variable(name)) is not None:
                raise ValueError(fault)
        return value


Inactivity = Annotated[
    timedelta,
    duration_reader("PT30M", "must be at least 1 minute and at most 90 days"),
    Field(ge=timedelta(minutes=1), le=LONGEST_DURATION),
]


class JobSubmit(Wire):
    """A request for GPUs: `gpus` on each of `nodes` nodes for `duration`. In a booking, `project` is the booking's."""

    model_config = with_example(
        name="train", gpus=2, gpu_type="h100", duration="PT4H", workload={"command": ["python", "train.py"]}
    )

    name: Annotated[Line, Field(min_length=1, max_length=200)] | None = None
    gpus: JobGpus
    gpu_type: GpuTypeName | None = None
    nodes: Annotated[int, Field(strict=True, ge=1, le=MAX_NODES)] = 1
    duration: Duration
    workload: Workload
    priority: Annotated[int, Field(strict=True, ge=-100, le=100)] = 0
    booking_id: Annotated[Line, Field(min_length=1, max_length=64)] | None = None
    project: ProjectName | None = None
    inactivity: Annotated[
        Inactivity | None,
        Field(description="End the session (a job without a command) after nobody was connected for this long."),
    ] = None
    secrets: Annotated[
        list[JobSecret],
        Field(
            max_length=MOST_IN_JOB,
            default_factory=list,
            exclude_if=not_,  # a request without them is that of servers which knew none, and its hash, too
            description="Your secrets that the job gets, with the values that they have when it starts.",
        ),
    ]
    after: Annotated[
        list[JobDependency],
        Field(
            max_length=MOST_DEPENDENCIES,
            default_factory=list,
            exclude_if=not_,
            description="Jobs that the job waits for. It is planned once all of them are as far.",
        ),
    ]

    @field_validator("after")
    @classmethod
    def _check_after(cls, value: list[JobDependency]) -> list[JobDependency]:
        if (fault := fault_of_dependencies([dependency.job for dependency in value])) is not None:
            raise ValueError(fault)
        return value

    retries: Annotated[
        RetriesAsked | None,
        Field(exclude_if=_is_none, description="Run the job again after such ends; it keeps its place in the queue."),
    ] = None
    array: Annotated[
        ArrayAsked | None, Field(exclude_if=_is_none, description="Run the command once for each element.")
    ] = None
    sync: Annotated[
        JobSyncAsked | None,
        Field(exclude_if=_is_none, description="The folder that the job works in, and what is kept of it at its end."),
    ] = None

    @model_validator(mode="after")
    def _check_array(self) -> Self:
        if self.array is not None and not self.workload.command:
            raise ValueError("an array needs a command to run for its elements: a session has none")
        if self.array is not None and self.booking_id is not None:
            raise ValueError("an array can't run in a booking; leave out `array` or `booking_id`")
        return self

    preemptible: Annotated[
        bool,
        Field(
            strict=True,
            exclude_if=not_,
            description="It counts for no quota, is promised no start, and gives its GPUs back when others need them.",
        ),
    ] = False
    min_runtime: Annotated[
        Duration | None,
        Field(exclude_if=_is_none, description="How long a preemptible job keeps its GPUs after a start for sure."),
    ] = None
    end_signal: Annotated[EndSignalAsked | None, Field(exclude_if=_is_none)] = None

    @field_validator("end_signal")
    @classmethod
    def _check_signal(cls, value: EndSignalAsked | None, info: ValidationInfo) -> EndSignalAsked | None:
        duration = info.data.get("duration")  # none where it was refused
        if value is not None and duration is not None and value.before > duration:
            raise ValueError(
                f"{written(value.before)} before the end is before the start; "
                f"it can be at most the duration, {written(duration)}"
            )
        return value

    @model_validator(mode="after")
    def _check_preemption(self) -> Self:
        if fault := fault_of_preemption(
            self.preemptible, self.min_runtime, self.duration, self.booking_id
        ) or fault_of_cpu_job(self.gpus, self.nodes, self.gpu_type, self.booking_id, preemptible=self.preemptible):
            raise ValueError(fault)
        return self

    resources: Annotated[
        ResourcesAsked | None,
        Field(
            exclude_if=_is_none,
            description="CPUs and memory on each node beside GPUs. In a booking, at most the share of its GPUs.",
        ),
    ] = None
    disks: JobDisks
    no_home: NoHome = False

    @model_validator(mode="after")
    def _check_disks(self) -> Self:
        uses, files = [disk.use for disk in self.disks], [secret.path for secret in self.secrets if secret.path]
        if uses and (fault := fault_of_disks(uses, files)) is not None:
            raise ValueError(f"disks: {fault}")
        if self.array is not None and (writing := next((use.name for use in uses if not use.read_only), None)):
            raise ValueError(
                f"disks: the elements of an array would write to a disk at once; let them only read it: `{writing}:ro`"
            )
        return self

    @model_validator(mode="after")
    def _check_secrets(self) -> Self:
        if self.secrets and (fault := fault_of_uses([secret.use for secret in self.secrets], self.workload.env)):
            raise ValueError(f"secrets: {fault}")
        return self


class JobExtend(Wire):
    by: Duration


class AllocationOut(Wire):
    """The GPUs of a job on one node."""

    node: str
    gpu_indices: list[int]
    gpu_uuids: list[str | None]
    pod: str
    gpu_type: Annotated[str | None, Field(description="The type of its GPUs, also where the job asked for any.")] = None


class EstimatedStart(Wire):
    """A waiting job's start as learnt from how long jobs really run, never later than its promised start."""

    p50: Annotated[Time, Field(description="It starts by then in half of all cases.")]
    p90: Annotated[Time, Field(description="It starts by then in nine of ten cases.")]


class Job(Wire):
    """A job as its owner sees it, or a user that it is shared with."""

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
    estimated_start: EstimatedStart | None = None
    started_at: Time | None
    ends_at: Time | None
    finished_at: Time | None
    exit_code: int | None
    allocations: list[AllocationOut]
    booking_id: str | None = None
    project: str | None = None
    inactivity: timedelta | None = None
    idle: IdleOut | None = None
    shared_with: Annotated[
        list[str] | None, Field(description="Users who may enter the job and look at it. Null for these users.")
    ] = None
    after: Annotated[
        list[JobDependencyOut],
        Field(default_factory=list, exclude_if=not_, description="The jobs that it waits for, or has waited for."),
    ]
    attempt: Annotated[int, Field(description="How often it was given GPUs. Each attempt has pods and a log.")] = 0
    retries: RetriesOut | None = None
    array: Annotated[JobArray | None, Field(exclude_if=_is_none, description="Only of an array.")] = None
    element: Annotated[JobElement | None, Field(exclude_if=_is_none, description="Only of an array's element.")] = None
    preemption: Annotated[
        PreemptionOut | None, Field(exclude_if=_is_none, description="Null unless the job is preemptible.")
    ] = None
    end_signal: Annotated[EndSignalOut | None, Field(exclude_if=_is_none)] = None
    resources: Annotated[ResourcesOut | None, Field(exclude_if=_is_none)] = None
    trace_id: Annotated[
        str | None, Field(exclude_if=_is_none, description="Its OpenTelemetry trace, where the server sends traces.")
    ] = None


class SoonerRequest(Wire):
    """A request that would start sooner. It differs in one thing: it is shorter, or for fewer GPUs, or another type."""

    change: RequestChange
    gpus: int
    gpu_type: str | None
    nodes: int
    duration: timedelta
    promised_start_at: Time


class JobVerdict(Wire):
    """What the planner would do with a job if it were submitted now; the job has no id and is not stored.

    `promised_start_at` is when it would start at the latest, null where it would be promised nothing yet. `reasons` are
    all that it would wait for. `instead` has the nearest change of each kind that would start sooner: the longest
    shorter duration, the most of fewer GPUs, and the other type that starts first. `estimates` is false where this
    server estimates no starts."""

    verdict: Annotated[
        RequestVerdict, Field(description="Whether it starts at once, or is accepted and waits. A refusal is an error.")
    ]
    promised_start_at: Time | None
    estimated_start: EstimatedStart | None
    queue_position: Place | None
    reasons: list[ReasonOut]
    instead: list[SoonerRequest]
    estimates: bool = True


class QueueEntry(Wire):
    """A waiting job, why it waits, and its estimated start."""

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
    estimated_start: EstimatedStart | None = None
    project: str | None = None


class WaitingTotal(Wire):
    """How many jobs wait for a type and how many GPUs they ask for, without their owners."""

    gpu_type: str | None
    jobs: int
    gpus: int


class QueuePage(Page[QueueEntry]):
    """A page of the queue, with totals over all users' jobs."""

    totals: list[WaitingTotal]


class WorkloadSpec(Wire):
    image: str | None
    command: list[str]
    env: Annotated[
        dict[str, str | None],
        Field(description="Its variables. Only the owner sees their values; other users get null."),
    ]
    working_dir: str | None


class JobSpec(Wire):
    """A job's request; `duration` includes extensions. Its owner can send it to `POST /v1/jobs` again."""

    name: str | None
    gpus: int
    gpu_type: str | None
    nodes: int
    duration: timedelta
    workload: WorkloadSpec
    priority: int
    booking_id: str | None
    project: str | None
    secrets: Annotated[list[JobSecretOut], Field(default_factory=list, exclude_if=not_)]
    after: Annotated[list[AskedDependency], Field(default_factory=list, exclude_if=not_)]
    retries: Annotated[JobRetries | None, Field(exclude_if=_is_none)] = None
    disks: Annotated[list[JobDiskOut], Field(default_factory=list, exclude_if=not_)]
    sync: Annotated[JobSyncOut | None, Field(exclude_if=_is_none)] = None
    array: Annotated[ArrayTermsOut | None, Field(exclude_if=_is_none)] = None
    preemptible: Annotated[bool, Field(exclude_if=not_)] = False
    min_runtime: Annotated[timedelta | None, Field(exclude_if=_is_none)] = None
    end_signal: Annotated[EndSignalOut | None, Field(exclude_if=_is_none)] = None
    resources: Annotated[ResourcesOut | None, Field(exclude_if=_is_none)] = None

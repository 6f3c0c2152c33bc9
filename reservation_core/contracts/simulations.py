"""Simulations over REST: a history or a trace, what is changed, and how long jobs would have waited."""

from datetime import timedelta
from typing import Annotated

from pydantic import Field, StringConstraints, model_validator

from reservation_core.contracts.base import (
    MAX_GPUS_PER_NODE,
    MAX_NODES,
    GpuTypeName,
    Line,
    ProjectName,
    Time,
    Wire,
    with_example,
)
from reservation_core.contracts.policy import LONGEST, Length, PositiveLength, Priority, RulesIn
from reservation_core.domain.policy.limits import PolicyRule
from reservation_core.domain.policy.nouns import QueueOrder, Scope
from reservation_core.domain.simulation.trace_rows import TraceRow

MOST_JOBS = 20_000
MOST_BOOKINGS = 5_000
MOST_TYPES = 20
MOST_RULES = 1000
MOST_GPUS = 32_768

Seconds = Annotated[float, Field(ge=0, le=LONGEST.total_seconds(), allow_inf_nan=False)]
MoreNodes = Annotated[int, Field(strict=True, ge=1, le=MAX_NODES)]
ScopeText = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=400)]


class TraceJobIn(Wire):
    """A job of a trace: it ran for `duration_s` by itself, and asked for `asked_s`."""

    submitted_at: Time
    duration_s: Seconds
    gpus: Annotated[int, Field(strict=True, ge=1, le=MAX_GPUS_PER_NODE * MAX_NODES)]
    asked_s: Seconds | None = None
    user: Annotated[Line, Field(max_length=200)] = ""
    project: ProjectName | None = None
    gpu_type: GpuTypeName | None = None
    priority: Priority = 0

    def row(self) -> TraceRow:
        """Convert to the domain."""
        asked = timedelta(seconds=self.asked_s) if self.asked_s else None
        ran = timedelta(seconds=self.duration_s)
        return TraceRow(self.submitted_at, ran, self.gpus, asked, self.user, self.project, self.gpu_type, self.priority)


class SimulatedCluster(Wire):
    """Nodes for a trace: so many GPUs of one type, `node_size` a node; the last node may have fewer."""

    gpus: Annotated[int, Field(strict=True, ge=1, le=MOST_GPUS)]
    node_size: Annotated[int, Field(strict=True, ge=1, le=MAX_GPUS_PER_NODE)] = 8


class SimulationCreate(Wire):
    """The jobs, by `history` (those submitted in that time up to now) or by `trace`, and what is changed for them.

    `cluster` is for a trace; without it a trace runs on the present nodes. `nodes_added` counts nodes by GPU type, like
    those that have it now; `gpu` stands for the type where there is only one. `policy` has rules by scope in place of
    all present ones. `fair_share_half_life` 0 is first come, first served.
    """

    model_config = with_example(history="P90D", nodes_added={"h100": 2})

    history: PositiveLength | None = None
    trace: Annotated[list[TraceJobIn], Field(min_length=1, max_length=MOST_JOBS)] | None = None
    cluster: SimulatedCluster | None = None
    order: QueueOrder | None = None
    nodes_added: Annotated[dict[GpuTypeName, MoreNodes], Field(max_length=MOST_TYPES)] = Field(default_factory=dict)
    policy: Annotated[dict[ScopeText, RulesIn], Field(max_length=MOST_RULES)] | None = None
    fair_share_half_life: Length | None = None

    @model_validator(mode="after")
    def _check_consistency(self) -> "SimulationCreate":
        if (self.history is None) == (self.trace is None):
            raise ValueError("give either `history` or `trace`")
        if self.cluster is not None and self.trace is None:
            raise ValueError("`cluster` is for a `trace`; a history runs on the present nodes")
        scopes = [_scope(text) for text in self.policy or {}]
        if len(set(scopes)) != len(scopes):
            raise ValueError("`policy` has the same scope twice")
        ordered = [text for text, rules in (self.policy or {}).items() if rules.order is not None]
        misplaced = [text for text in ordered if not _scope(text).has_order]
        if misplaced:
            raise ValueError(f"`order` is a rule of everybody or of a project, not of `{misplaced[0]}`")
        return self

    def rules(self) -> tuple[PolicyRule, ...] | None:
        """The rules of `policy`; None without it."""
        if self.policy is None:
            return None
        return tuple(PolicyRule(Scope.parse(text), rules.rules()) for text, rules in self.policy.items())


def _scope(text: str) -> Scope:
    try:
        return Scope.parse(text)
    except ValueError as error:
        raise ValueError(f"`policy`: {error}") from error


class WaitOfSize(Wire):
    gpus: int
    wait_s: float


class WaitOfUser(Wire):
    user: str
    wait_s: float


class CurvePoint(Wire):
    """So large a part of the jobs waited no longer than `wait_s`."""

    wait_s: float
    share: float


class SimulatedWaits(Wire):
    """Waits and promises, in seconds. `slowdown` is the mean of (wait + run) / run, with runs of at least 10 minutes.

    `used` is the part of all GPU-time in which jobs ran. `ahead_s` is the median of promised minus real start,
    `ahead_p90_s` its 90th percentile; `broken` counts promises that were not kept, `refused_bookings` bookings for
    which too few GPUs were free when they were made. `by_user` has the 1,000 users who waited longest.
    """

    gpus: int
    mean_s: float
    median_s: float
    p90_s: float
    p99_s: float
    longest_s: float
    slowdown: float
    used: float
    broken: int
    ahead_s: float
    ahead_p90_s: float
    refused_bookings: int
    by_size: list[WaitOfSize]
    by_user: list[WaitOfUser]
    curve: list[CurvePoint]


class SimulationOut(Wire):
    """The same jobs as today and changed, beside the same bookings.

    `answer` is a sentence for people, `left_out` says what is not simulated.
    """

    answer: str
    jobs: int
    bookings: int
    today: SimulatedWaits
    changed: SimulatedWaits
    left_out: list[str]

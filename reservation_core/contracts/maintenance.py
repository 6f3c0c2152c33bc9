"""Maintenance windows over REST, and the jobs and bookings that they affect."""

from datetime import datetime, timedelta
from typing import Annotated

from pydantic import Field, model_validator

from reservation_core.contracts.base import Duration, Instant, Prose, Time, Wire, with_example
from reservation_core.contracts.bookings import NodeName
from reservation_core.domain.bookings.windows import Fate, WindowStatus, window_faults
from reservation_core.domain.statuses import ReservationKind

MAX_WINDOW_NODES = 1024
MAX_WINDOW_GPUS = 4096


class GpuPlace(Wire):
    node: NodeName
    index: Annotated[int, Field(strict=True, ge=0, le=1023)]


class MaintenanceCreate(Wire):
    """A maintenance window: the GPUs of `node` or `nodes`, or `gpus`, from `start` (default: now) to `end` or for
    `duration`.

    `dry_run` lists the affected jobs and bookings and changes nothing.
    """

    model_config = with_example(
        node="node1", start="2030-01-31T09:00:00Z", duration="PT4H", reason="New fans.", dry_run=True
    )

    node: NodeName | None = None
    nodes: Annotated[list[NodeName], Field(min_length=1, max_length=MAX_WINDOW_NODES)] | None = None
    gpus: Annotated[list[GpuPlace], Field(min_length=1, max_length=MAX_WINDOW_GPUS)] | None = None
    start: Instant | None = None
    end: Instant | None = None
    duration: Duration | None = None
    reason: Annotated[Prose, Field(min_length=1, max_length=1000)]
    dry_run: Annotated[bool, Field(strict=True)] = False

    @model_validator(mode="after")
    def _check_consistency(self) -> "MaintenanceCreate":
        faults: list[str] = []
        if sum(part is not None for part in (self.node, self.nodes, self.gpus)) != 1:
            faults.append("name one of `node`, `nodes` and `gpus`")
        if (self.end is None) == (self.duration is None):
            faults.append("give either `end` or `duration`")
        faults += window_faults(self.start, self.end, self.duration)
        if faults:
            raise ValueError("; ".join(faults))
        return self

    def end_from(self, start: datetime) -> datetime:
        """The end, given the start."""
        return self.end or start + (self.duration or timedelta(0))


class AffectedOut(Wire):
    """A job or booking, and what a maintenance window does to it. `ends_at`: its new end; `resumes_at`: when it
    continues or begins later; `goes_on_as`: the booking for the rest (null in a dry run)."""

    id: str
    kind: ReservationKind
    user: str
    fate: Fate
    ends_at: Time | None
    resumes_at: Time | None = None
    goes_on_as: str | None = None


class MaintenanceOut(Wire):
    """A maintenance window. `id` and `status` are null in a dry run."""

    id: str | None
    status: WindowStatus | None
    gpus: list[GpuPlace]
    start: Time
    end: Time
    reason: str
    created_by: str
    created_at: Time
    finished_at: Time | None
    affected: list[AffectedOut]

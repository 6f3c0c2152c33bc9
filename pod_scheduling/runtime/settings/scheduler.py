"""The scheduler of mapped pods: its settings."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from pod_scheduling.domain.maps.map_placement import Overlap
from reservation_core.domain.pods.map_marks import SCHEDULER_NAME
from reservation_core.runtime.settings.components import CommonSettings
from reservation_core.runtime.settings.section import Seconds, Section

_NAME = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"


class SchedulerRules(Section):
    """Which pods are bound, and how. Times are in seconds."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$")] = SCHEDULER_NAME
    overlap: Overlap = Overlap.DENY  # pods of two owners on one card
    node_label: Annotated[str, Field(min_length=1, max_length=317)] = "gpu-node-name"
    parallel: Annotated[int, Field(ge=1, le=500)] = 16
    # Only in namespaces with this label is it believed what the webhook wrote of bookings: elsewhere it does not look.
    enforced_label: Annotated[str, Field(pattern=r"^[A-Za-z0-9][-A-Za-z0-9_./]{0,316}=[-A-Za-z0-9_.]{1,63}$")] = (
        "gpu-dev/enforce-bookings=true"
    )
    sweep_s: Seconds = 30  # everybody who waits is looked at so often, whatever was told meanwhile
    ledger_s: Seconds = 1  # how often promised cards are read, where there is a database
    ledger_patience_s: Seconds = 60  # nothing is bound when they could not be read for so long
    events_per_s: Annotated[float, Field(gt=0, le=1000)] = 50
    # Where the Lease is: the namespace of the service account, unless this says so.
    lease_namespace: Annotated[str, Field(pattern=_NAME)] | None = None
    lease_name: Annotated[str, Field(pattern=_NAME)] = "gpu-scheduler"
    lease_s: Seconds = 15
    renew_within_s: Seconds = 10
    retry_s: Seconds = 2

    @model_validator(mode="after")
    def _lease_makes_sense(self) -> Self:
        if not self.retry_s < self.renew_within_s < self.lease_s:
            raise ValueError("retry_s must be less than renew_within_s, and that less than lease_s")
        return self


class SchedulerSettings(CommonSettings):
    """The scheduler. For the map alone it needs no database; with GPU_DEV_DATABASE_URL it keeps off reserved cards."""

    scheduler: SchedulerRules = Field(default_factory=SchedulerRules)

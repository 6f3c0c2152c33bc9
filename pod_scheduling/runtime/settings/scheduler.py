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

    # The schedulerName of the pods that this scheduler binds
    name: Annotated[str, Field(pattern=r"^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$")] = SCHEDULER_NAME
    overlap: Overlap = Overlap.DENY  # pods of two owners on one GPU: deny, warn or allow
    # The node label with the name by which scheduling maps call a node
    node_label: Annotated[str, Field(min_length=1, max_length=317)] = "gpu-node-name"
    parallel: Annotated[int, Field(ge=1, le=500)] = 16  # pods bound at the same time, at most
    # The label of namespaces where bookings are enforced. The webhook's annotations with bookings count only there.
    enforced_label: Annotated[str, Field(pattern=r"^[A-Za-z0-9][-A-Za-z0-9_./]{0,316}=[-A-Za-z0-9_.]{1,63}$")] = (
        "gpu-dev/enforce-bookings=true"
    )
    sweep_s: Seconds = 30  # time between two looks at all waiting pods, besides every change
    ledger_s: Seconds = 1  # time between two reads of promised GPUs, where there is a database
    ledger_patience_s: Seconds = 60  # without a successful read of promised GPUs for so long, no pod is bound
    events_per_s: Annotated[float, Field(gt=0, le=1000)] = 50  # Kubernetes Events written a second, at most
    # The Lease's namespace; none: that of the service account.
    lease_namespace: Annotated[str, Field(pattern=_NAME)] | None = None
    lease_name: Annotated[str, Field(pattern=_NAME)] = "gpu-scheduler"  # the Lease's name
    # How long the lease holder is believed without renewing its Lease; then another replica takes over
    lease_s: Seconds = 15
    renew_within_s: Seconds = 10  # the lease holder stops its work when it could not renew the Lease for so long
    retry_s: Seconds = 2  # time between two attempts to take or renew the Lease

    @model_validator(mode="after")
    def _lease_makes_sense(self) -> Self:
        if not self.retry_s < self.renew_within_s < self.lease_s:
            raise ValueError("retry_s must be less than renew_within_s, and that less than lease_s")
        return self


class SchedulerSettings(CommonSettings):
    """The scheduler. For the map alone it needs no database; with GPU_DEV_DATABASE_URL it keeps off reserved cards."""

    scheduler: SchedulerRules = Field(default_factory=SchedulerRules)

"""The scheduler extender's settings."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from pod_scheduling.ports.extender import AssumeAt, Candidates
from reservation_core.domain.cards.placement_policies import DEFAULT_POLICY, PlacementPolicy
from reservation_core.runtime.settings.components import CommonSettings
from reservation_core.runtime.settings.section import Seconds, Section

_NAME = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
_OBJECT_NAME = r"^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$"
_KEY = r"^[-._a-zA-Z0-9]{1,253}$"
_QUALIFIED = r"^([a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$"

QualifiedName = Annotated[str, Field(pattern=_QUALIFIED)]
"""The name of a label or of a resource, such as `nvidia.com/gpu.product`."""


class VolcanoShape(StrEnum):
    """In which words Volcano is told that a node does not do; versions between two of these go by the older one.

    `auto` goes by what the question itself shows of its sender, and else takes words that 1.7 and 1.10 and newer read
    alike.
    """

    AUTO = "auto"
    V1_7 = "v1.7"
    V1_8 = "v1.8"
    V1_10 = "v1.10"


class ShareCards(StrEnum):
    """The choice of the card of a share on its node: gpu-manager's own order, or the placement policy.

    gpu-manager chooses once more on the node, and ends a container for which it would have chosen another card.
    """

    GPU_MANAGER = "gpu-manager"
    POLICY = "policy"


class AdmissionRules(Section):
    """Addresses, the callers they answer, and time limits. Times are in seconds."""

    address: Annotated[str, Field(min_length=3, max_length=300)] = "127.0.0.1:3456"
    debug_address: Annotated[str, Field(max_length=300)] = "127.0.0.1:3457"  # empty: no profiles
    # Where /metrics is answered besides, such as 0.0.0.0:9090, without TLS and nothing else; empty: nowhere.
    metrics_address: Annotated[str, Field(max_length=300)] = ""
    # PEM files; read again when they change. Without them it is plain HTTP.
    tls_cert: Path | None = None
    tls_key: Path | None = None
    policy: PlacementPolicy = DEFAULT_POLICY
    volcano_shape: VolcanoShape = VolcanoShape.AUTO
    model_label: QualifiedName = "nvidia.com/gpu.product"
    pool_label: QualifiedName = "gpu-pool"
    share_resource: QualifiedName = "tencent.com/vcuda-core"  # 100 are one card
    memory_resource: QualifiedName = "tencent.com/vcuda-memory"
    share_cards: ShareCards = ShareCards.GPU_MANAGER
    # Where quotas by namespace and model stand.
    quota_namespace: Annotated[str, Field(pattern=_NAME)] = "kube-system"
    quota_name: Annotated[str, Field(pattern=_OBJECT_NAME)] = "gpuquota"
    quota_key: Annotated[str, Field(pattern=_KEY)] = "gpu_quota"
    # filter: for schedulers that bind by themselves. bind: asking leaves nothing behind. auto: from filter
    # on, unless such pods are seen to be bound by us.
    assume_at: AssumeAt = AssumeAt.AUTO
    # best: of the nodes that would do the best alone is told, unless the pod prefers some itself.
    candidates: Candidates = Candidates.ALL
    assumed_s: Seconds = (
        30  # who is not seen bound for so long is looked up; see pod_scheduling.usecases.extender.rules
    )
    # Assumed pods: kube-scheduler was told nodes for them and may be about to bind; it waits ten minutes for volumes.
    binding_s: Annotated[float, Field(ge=1, le=3600)] = 660
    # Only in namespaces with this label is it believed what the webhook wrote of owners and bookings.
    enforced_label: Annotated[str, Field(pattern=r"^[A-Za-z0-9][-A-Za-z0-9_./]{0,316}=[-A-Za-z0-9_.]{1,63}$")] = (
        "gpu-dev/enforce-bookings=true"
    )
    ledger_s: Seconds = 1  # how often promised cards are read, where there is a database
    ledger_patience_s: Seconds = 60  # nothing is answered when they could not be read for so long
    events_per_s: Annotated[float, Field(gt=0, le=1000)] = 50
    max_body_bytes: Annotated[int, Field(ge=64 * 1024, le=1024 * 2**20)] = 64 * 2**20
    # All bodies that are being read or answered together; who comes when it is full waits his turn.
    max_bytes_in_flight: Annotated[int, Field(ge=64 * 1024, le=16 * 2**30)] = 128 * 2**20
    body_s: Seconds = 10  # within so long a request must have come, its turn included
    idle_s: Annotated[int, Field(ge=1, le=3600)] = 120  # how long a connection may be idle; schedulers close after 90 s
    drain_s: Annotated[float, Field(ge=0, le=600)] = 2  # after SIGTERM it answers on for so long, not ready
    certificate_look_s: Seconds = 1  # how often it looks whether the certificate's files have changed
    # With a lease one replica answers, and the others are not ready.
    leader_elect: bool = False
    lease_namespace: Annotated[str, Field(pattern=_NAME)] | None = None  # the service account's, unless this says so
    lease_name: Annotated[str, Field(pattern=_NAME)] = "gpu-admission"
    lease_s: Seconds = 15
    renew_within_s: Seconds = 10
    retry_s: Seconds = 2

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if not self.retry_s < self.renew_within_s < self.lease_s:
            raise ValueError("retry_s must be less than renew_within_s, and that less than lease_s")
        if self.max_body_bytes > self.max_bytes_in_flight:
            raise ValueError("max_body_bytes must not be more than max_bytes_in_flight")
        return self


class AdmissionSettings(CommonSettings):
    """The scheduler extender. It needs no database; with GPU_DEV_DATABASE_URL it keeps off reserved cards."""

    admission: AdmissionRules = Field(default_factory=AdmissionRules)

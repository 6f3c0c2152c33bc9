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

    # The address at which schedulers reach the extender
    address: Annotated[str, Field(min_length=3, max_length=300)] = "127.0.0.1:3456"
    # The address of profiles (/debug/pprof/); empty: no profiles
    debug_address: Annotated[str, Field(max_length=300)] = "127.0.0.1:3457"
    # A separate address for /metrics, such as 0.0.0.0:9090, without TLS. Empty: /metrics is at the extender's address
    # alone.
    metrics_address: Annotated[str, Field(max_length=300)] = ""
    # PEM files, both or neither: the certificate with its chain, and its key. Read again when they change. Without them
    # the extender serves plain HTTP.
    tls_cert: Path | None = None
    tls_key: Path | None = None  # the key of GPU_DEV_ADMISSION__TLS_CERT
    # How nodes and GPUs are chosen: binpack, spread, fgd or priced, as GPU_DEV_PLACEMENT__POLICY.
    policy: PlacementPolicy = DEFAULT_POLICY
    # The form of refusals for Volcano: v1.7, v1.8 or v1.10 (also newer ones); auto: read from the question.
    volcano_shape: VolcanoShape = VolcanoShape.AUTO
    model_label: QualifiedName = "nvidia.com/gpu.product"  # the node label with the GPU model, which quotas name
    # The label of nodes and pods with the pool; a pod with it goes to nodes of this pool alone
    pool_label: QualifiedName = "gpu-pool"
    share_resource: QualifiedName = "tencent.com/vcuda-core"  # the resource of shares of a GPU; 100 are a whole GPU
    memory_resource: QualifiedName = "tencent.com/vcuda-memory"  # the resource of GPU memory of shares
    # How a share's GPU on its node is chosen: gpu-manager: in gpu-manager's order; policy: by the placement policy.
    share_cards: ShareCards = ShareCards.GPU_MANAGER
    # The namespace of the ConfigMap with the quotas by namespace and model
    quota_namespace: Annotated[str, Field(pattern=_NAME)] = "kube-system"
    quota_name: Annotated[str, Field(pattern=_OBJECT_NAME)] = "gpuquota"  # the name of the ConfigMap with the quotas
    quota_key: Annotated[str, Field(pattern=_KEY)] = "gpu_quota"  # the key in the ConfigMap with the quotas, as JSON
    # When a pod's GPUs and quota count as used: filter, when a scheduler asks for nodes (schedulers that bind by
    # themselves); bind, when the extender binds the pod; auto: filter, unless the extender is seen to bind such pods.
    assume_at: AssumeAt = AssumeAt.AUTO
    # The nodes in an answer: all that fit, or best, the best one alone. A pod that prefers some nodes itself gets all.
    candidates: Candidates = Candidates.ALL
    assumed_s: Seconds = 30  # how long an assumed pod may stay unbound before the extender looks it up
    # How long kube-scheduler may take to bind an assumed pod: it waits up to ten minutes for volumes.
    binding_s: Annotated[float, Field(ge=1, le=3600)] = 660
    # The label of namespaces where bookings are enforced. The webhook's annotations with owners and bookings count only
    # there.
    enforced_label: Annotated[str, Field(pattern=r"^[A-Za-z0-9][-A-Za-z0-9_./]{0,316}=[-A-Za-z0-9_.]{1,63}$")] = (
        "gpu-dev/enforce-bookings=true"
    )
    ledger_s: Seconds = 1  # time between two reads of promised GPUs, where there is a database
    # Without a successful read of promised GPUs for so long, the extender answers nothing
    ledger_patience_s: Seconds = 60
    events_per_s: Annotated[float, Field(gt=0, le=1000)] = 50  # Kubernetes Events written a second, at most
    max_body_bytes: Annotated[int, Field(ge=64 * 1024, le=1024 * 2**20)] = 64 * 2**20  # the largest request
    # The total size of requests that are read or answered at the same time; further requests wait.
    max_bytes_in_flight: Annotated[int, Field(ge=64 * 1024, le=16 * 2**30)] = 128 * 2**20
    body_s: Seconds = 10  # how long a request may take to arrive, with the time that it waits for room
    # How long a connection may be idle; schedulers close theirs after 90 s
    idle_s: Annotated[int, Field(ge=1, le=3600)] = 120
    # How long the extender still answers after SIGTERM, while /ready says 503
    drain_s: Annotated[float, Field(ge=0, le=600)] = 2
    certificate_look_s: Seconds = 1  # time between two looks for changed certificate files
    # Whether replicas elect a leader by a Lease: it alone answers, and the others are not ready.
    leader_elect: bool = False
    # The Lease's namespace; none: that of the service account
    lease_namespace: Annotated[str, Field(pattern=_NAME)] | None = None
    lease_name: Annotated[str, Field(pattern=_NAME)] = "gpu-admission"  # the Lease's name
    # How long the lease holder is believed without renewing its Lease; then another replica takes over
    lease_s: Seconds = 15
    renew_within_s: Seconds = 10  # the lease holder stops its work when it could not renew the Lease for so long
    retry_s: Seconds = 2  # time between two attempts to take or renew the Lease

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

"""Settings, from the environment (prefix `GPU_DEV_`, `__` for nesting) and, for secrets, from files.

`GPU_DEV_SECRETS_DIR` names a directory in which a file `gpu_dev_database_url` may hold the database's URL,
`gpu_dev_database_password` its password, and `gpu_dev_smtp_password` the mail server's.
"""

import os
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, Self, assert_never

from pydantic import AfterValidator, AliasChoices, BeforeValidator, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from reservation_core.adapters.kubernetes.pods.gpu_attaching import GpuAttach, GpuPin
from reservation_core.domain.cards.placement_policies import DEFAULT_POLICY, PlacementPolicy
from reservation_core.domain.history.retention import RetentionRules
from reservation_core.domain.network.client_addresses import trusted_networks
from reservation_core.runtime.settings.auth import AuthSettings
from reservation_core.runtime.settings.http import HttpSettings
from reservation_core.runtime.settings.notices import NoticeSettings, SmtpSettings
from reservation_core.runtime.settings.retention import RetentionSettings
from reservation_core.runtime.settings.section import Seconds, Section, split
from reservation_core.runtime.settings.web import WebSettings


class ClusterKind(StrEnum):
    """What runs pods."""

    LOCAL = "local"
    KUBERNETES = "kubernetes"


class UnknownPodRule(StrEnum):
    """What becomes of a pod that carries our marks and that the ledger doesn't know."""

    REPORT = "report"
    END = "end"


class Holders(StrEnum):
    """Viewers that see by whom cards are held and booked; administrators always do."""

    EVERYONE = "everyone"
    MEMBERS = "members"
    SELF = "self"


def _upper(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


def _none_if_empty(value: object) -> object:
    return None if value == "" else value


LogLevel = Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], BeforeValidator(_upper)]
# Where /healthz and /readyz are answered, such as 0.0.0.0:8081; None: nowhere.
HealthListen = Annotated[str, Field(min_length=3, max_length=300)] | None
Names = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=317)], ...],
    NoDecode,
    BeforeValidator(split),
    Field(min_length=1, max_length=20),
]
CronJobs = Annotated[
    tuple[Annotated[str, Field(pattern=r"^[a-z0-9]([-.a-z0-9]{0,50}[a-z0-9])?$")], ...],
    NoDecode,
    BeforeValidator(split),
    Field(max_length=20),
]
WarningTimes = Annotated[
    tuple[Annotated[int, Field(gt=0, le=86_400 * 400)], ...], NoDecode, BeforeValidator(split), Field(max_length=20)
]


def _proxies(value: tuple[str, ...]) -> tuple[str, ...]:
    trusted_networks(value)
    return value


Proxies = Annotated[
    tuple[Annotated[str, Field(min_length=2, max_length=50)], ...],
    NoDecode,
    BeforeValidator(split),
    Field(max_length=100),
    AfterValidator(_proxies),
]


class GpuSettings(Section):
    """How GPUs are found on nodes, and how pods get them."""

    attach: GpuAttach = GpuAttach.ENV
    pin: GpuPin = GpuPin.AFFINITY
    # Node capacity is read, and foreign GPU users are known, by these resources.
    resource_names: Names = ("nvidia.com/gpu", "amd.com/gpu")
    # The device classes and DRA drivers whose devices are GPUs; claims of others are none.
    device_classes: Names = ("gpu.nvidia.com", "mig.nvidia.com", "gpu.amd.com")
    # The first of these labels that a node has says its type.
    type_labels: Names = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "gpu-dev/gpu-type")
    # Product (lower case) to gpu_type, before the built-in table: {"nvidia-weird-card": "h100"}.
    types: dict[str, str] = Field(default_factory=dict, max_length=1000)


class KubernetesSettings(Section):
    """How to reach the API server, and what pods are there."""

    kubeconfig: Path | None = None  # without one: inside a cluster its service account, else the usual ~/.kube/config
    context: str | None = None
    # The API server's address, where it is to be another than the kubeconfig or the cluster itself says.
    server: Annotated[str, Field(pattern=r"^https?://[^\s/@]+(/[^\s@]*)?$", max_length=2000)] | None = None
    namespace: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")] = "gpu-dev"
    node_selector: str = ""  # a label selector: which nodes are ours
    scheduler_name: str = "default-scheduler"
    default_image: str | None = None  # for jobs that name no image
    pod_defaults: Path | None = None  # YAML: tolerations, runtimeClassName, imagePullSecrets, volumes …
    request_timeout_s: Seconds = 30  # for one attempt
    call_limit_s: Seconds = 40  # for a call with all its attempts, and the wait for its turn
    late_s: Annotated[float, Field(ge=0, le=3600)] = 60  # what was given up may be carried out so much later
    watch_silence_s: Seconds = 90  # a watch that brings nothing for so long is begun anew; a server speaks every minute
    creates_per_s: Annotated[float, Field(ge=0, le=100_000)] = 50  # 0: no pacing
    # Kubernetes can only shorten a pod's deadline. This much is left for extensions; 0 makes the second belt tight.
    extension_room_s: Annotated[float, Field(ge=0, le=86_400 * 400)] = 86_400 * 30


class PlacementSettings(Section):
    """On which nodes jobs start, of those with enough free cards."""

    policy: PlacementPolicy = DEFAULT_POLICY


class CommonSettings(BaseSettings):
    """What every process reads."""

    model_config = SettingsConfigDict(
        env_prefix="GPU_DEV_",
        env_nested_delimiter="__",
        extra="ignore",
        hide_input_in_errors=True,
        secrets_dir=os.environ.get("GPU_DEV_SECRETS_DIR"),
    )

    home: Path = Path(".gpu-dev")
    database_url: SecretStr | None = None
    # The password of that URL, and of the replica's, where they name none.
    database_password: SecretStr | None = None
    # Keys that seal variables of jobs, and addresses and secrets of hooks, in the database: base64 of 32 bytes, one a
    # line. The first seals, all open. None: these are stored as they are said.
    seal_key_file: Path | None = None
    # Pod operations hold a connection each while the cluster works; planner, lease and requests need theirs beside.
    database_pool: Annotated[int, Field(ge=1, le=200)] = 20
    # So long a program that looks once and ends (expiry, updater) waits at its start for a database that is away.
    database_wait_s: Annotated[float, Field(ge=0, le=3600)] = 30
    cluster: ClusterKind = ClusterKind.LOCAL
    local_gpus: str | None = None
    gpu: GpuSettings = Field(default_factory=GpuSettings)
    kubernetes: KubernetesSettings = Field(default_factory=KubernetesSettings)
    http: HttpSettings = Field(default_factory=HttpSettings)
    retention: RetentionSettings = Field(default_factory=RetentionSettings)
    log_level: LogLevel = "INFO"
    log_json: bool = True


class StartSettings(CommonSettings):
    """Settings of processes that know how long pods take to start."""

    start_allowance_s: Seconds = 120

    @property
    def start_allowance(self) -> timedelta:
        """How long pods may take from allocation to running."""
        return timedelta(seconds=self.start_allowance_s)


class KeepingSettings(CommonSettings):
    """Settings of processes that remove old rows."""

    idempotency_keep_s: Seconds = 86_400
    log_keep_s: Seconds = 86_400 * 7

    @property
    def retention_rules(self) -> RetentionRules:
        """How long everything is kept."""
        return self.retention.rules(idempotency_s=self.idempotency_keep_s, logs_s=self.log_keep_s)


class GraceSettings(StartSettings):
    """Settings of processes that also know how long pods take to end."""

    end_grace_s: Seconds = 10
    release_s: Annotated[float, Field(ge=0, le=3600)] | None = None  # until pods are seen to be gone, after that

    @property
    def end_grace(self) -> timedelta:
        """How long pods have between SIGTERM and SIGKILL."""
        return timedelta(seconds=self.end_grace_s)

    @property
    def turnaround(self) -> timedelta:
        """How long after a job's end its GPUs may not be free yet: what follows is promised them only then."""
        if self.release_s is not None:
            return self.end_grace + timedelta(seconds=self.release_s)
        match self.cluster:
            case ClusterKind.LOCAL:
                return self.end_grace
            case ClusterKind.KUBERNETES:
                return self.end_grace + timedelta(seconds=2)
            case _:
                assert_never(self.cluster)


class WaitlistSettings(CommonSettings):
    """Settings of processes that look at the waitlist."""

    offer_s: Seconds = 1800  # how long cards are kept for somebody on the waitlist who has to answer

    @property
    def offer(self) -> timedelta:
        """How long an offer stands."""
        return timedelta(seconds=self.offer_s)


class CalendarSettings(WaitlistSettings):
    """Settings of the calendar: what is notified and done as bookings begin, go unused and end."""

    starting_soon_s: WarningTimes = (86_400, 3600, 600)
    ending_soon_s: WarningTimes = (86_400, 3600, 600)
    no_show_grace_s: Seconds | None = None  # how long a booking may stay unused where no policy says so; None: for ever

    @property
    def no_show_grace(self) -> timedelta | None:
        """How long a booking may stay unused where no policy says so."""
        return None if self.no_show_grace_s is None else timedelta(seconds=self.no_show_grace_s)


class EndSettings(StartSettings, CalendarSettings):
    """Settings of processes that end jobs, warn before, and give up starts: the leading processor, and the expiry
    behind it.
    """

    warn_before_s: WarningTimes = (1800, 900, 300)
    max_starts: Annotated[int, Field(ge=1, le=100)] = 3
    ending_patience_s: Seconds = 60


class ApiSettings(GraceSettings, WaitlistSettings):
    """The API service."""

    listen: str = "127.0.0.1:8080"
    # PEM files, both or neither: the certificate with its chain, and its key. With them it serves over TLS alone.
    tls_cert: Path | None = None
    tls_key: Path | None = None
    # Where /metrics is answered, such as 0.0.0.0:9090: there alone then, without TLS. None: where all else is.
    metrics_listen: HealthListen = None
    # A line for each request: `-` beside the log's other lines, a file (its path from GPU_DEV_HOME), or empty: none.
    access_log: Annotated[str, Field(max_length=4096)] = "-"
    # A streaming replica of the database, where lists and heavy reads are done; empty: all at the primary.
    database_replica_url: Annotated[SecretStr | None, BeforeValidator(_none_if_empty)] = None
    # So long a read waits until the replica has all that the primary has; after that the primary answers.
    database_replica_wait_s: Annotated[float, Field(gt=0, le=5)] = 0.25
    # So long a request waits for a connection to the database, and for each of its answers; after that it gets 503.
    database_patience_s: Annotated[float, Field(ge=0.1, le=60)] = 4
    # So long for an answer to what reads much: lists, free time, usage, metrics.
    database_read_patience_s: Annotated[float, Field(ge=0.1, le=60)] = 30
    # Proxies, by address or CIDR range, whose X-Forwarded-For is believed; nobody else's is.
    trusted_proxies: Proxies = ()
    max_body_bytes: Annotated[int, Field(ge=1024, le=16 * 2**20)] = 256 * 1024
    max_duration_s: Seconds = 86_400 * 30
    token_cache_s: Annotated[float, Field(ge=0, le=60)] = 2.0
    submit_batch: Annotated[int, Field(ge=1, le=1000)] = 100
    # So many jobs a user's programs may follow at once (`gpu-dev run`, `logs --follow`), in each API process.
    streams_per_user: Annotated[int, Field(ge=1, le=100_000)] = 200
    # everyone: whoever is signed in; members: who is in a project with the holder; self: nobody else.
    holders: Holders = Holders.EVERYONE
    auth: AuthSettings = Field(default_factory=AuthSettings)
    web: WebSettings = Field(default_factory=WebSettings)
    web_oidc_client_secret: SecretStr | None = None
    policy_file: Path | None = None  # TOML: rules by scope, taken over at the start when the file has changed

    @property
    def max_duration(self) -> timedelta:
        """The longest a job may last, extensions included."""
        return timedelta(seconds=self.max_duration_s)


class ProcessorSettings(GraceSettings, EndSettings, KeepingSettings):
    """The reservation processor."""

    health_listen: HealthListen = None  # a processor within `make up` has the API's
    cron_jobs: CronJobs = ()  # in the pod's own namespace: when they last ended well is told by /metrics
    lease_s: Seconds = 3
    sweep_s: Seconds = 0.5
    resync_s: Seconds | None = None  # by default 5 s on a local cluster, 60 s on Kubernetes, which tells of changes
    reload_s: Seconds = 60
    unknown_pods: UnknownPodRule = UnknownPodRule.REPORT
    log_keep_lines: Annotated[int, Field(ge=0, le=100_000)] = 1000
    plan_batch: Annotated[int, Field(ge=1, le=100_000)] = 1000
    plan_window: Annotated[int, Field(ge=10, le=1_000_000)] = 20_000
    estimates: Annotated[int, Field(ge=0, le=100_000)] = 500
    promises: Annotated[int, Field(ge=0, le=100_000)] = 10_000  # so many of the line have a slot in the calendar
    slot_batch: Annotated[int, Field(ge=1, le=10_000)] = 100  # jobs looked at between two looks at who can start
    slot_batches: Annotated[int, Field(ge=1, le=10_000)] = 60
    slot_s: Annotated[float, Field(ge=0.0001, le=1)] = 0.002  # how long they are looked at, at most
    estimate_s: Seconds = 1
    # Usage counts half after so long, and orders equals in the line; 0: first come, first served whatever was used.
    fair_share_half_life_s: Annotated[float, Field(ge=0, le=86_400 * 400)] = 86_400 * 7
    fair_share_every_s: Seconds = 60
    pod_operations_parallel: Annotated[int, Field(ge=1, le=1000)] = 8
    pod_operations_per_s: Annotated[float, Field(gt=0, le=100_000)] = 200
    max_reads: Annotated[int, Field(ge=1, le=100)] = 5
    placement: PlacementSettings = Field(default_factory=PlacementSettings)
    visibility_s: Seconds = 10
    notices: NoticeSettings = Field(default_factory=NoticeSettings)
    smtp: SmtpSettings = Field(default_factory=SmtpSettings)
    smtp_password: SecretStr | None = None

    @property
    def resync_every(self) -> timedelta:
        """How often rows are compared with pods."""
        if self.resync_s is not None:
            return timedelta(seconds=self.resync_s)
        match self.cluster:
            case ClusterKind.LOCAL:
                return timedelta(seconds=5)
            case ClusterKind.KUBERNETES:
                return timedelta(seconds=60)
            case _:
                assert_never(self.cluster)

    @property
    def unanswered_create_lasts(self) -> timedelta:
        """For how long a pod that was asked for may come to be when no answer came."""
        match self.cluster:
            case ClusterKind.LOCAL:
                return timedelta(0)
            case ClusterKind.KUBERNETES:
                return timedelta(seconds=self.kubernetes.call_limit_s + self.kubernetes.late_s)
            case _:
                assert_never(self.cluster)


class UpdaterSettings(CommonSettings):
    """The availability updater."""


class NodeAgentSettings(CommonSettings):
    """The node agent. `NODE_NAME` is what a pod's manifest usually calls its own node's name."""

    node_name: Annotated[str, Field(validation_alias=AliasChoices("NODE_NAME", "GPU_DEV_NODE_NAME"))]
    look_every_s: Seconds = 60


class PodEndSettings(Section):
    """How pods that people made are ended where bookings are enforced. Times are in seconds."""

    enabled: bool = False
    # Bookings are enforced in namespaces with this label; the webhook's configuration names the same.
    namespace_label: Annotated[str, Field(pattern=r"^[A-Za-z0-9][-A-Za-z0-9_./]{0,316}=[-A-Za-z0-9_.]{1,63}$")] = (
        "gpu-dev/enforce-bookings=true"
    )
    warn_before_s: WarningTimes = (1800, 900, 300)
    lead_s: Annotated[float, Field(ge=0, le=86_400)] = 60  # so long before a booking begins its cards are made free
    grace_s: Annotated[int, Field(ge=1, le=86_400)] = 30  # between SIGTERM and SIGKILL, where the pod wants more
    budget_patience_s: Seconds = 600  # so long a PodDisruptionBudget may keep a pod that has to go
    override_budgets: bool = False  # after that it is deleted; else it is told, and tried again
    look_s: Seconds = 5  # the watching loop looks so often, and whenever a pod has changed
    events_per_s: Annotated[float, Field(gt=0, le=1000)] = 50
    # Where the Lease is: the namespace of the service account, unless this says so.
    lease_namespace: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")] | None = None
    lease_s: Seconds = 15
    renew_within_s: Seconds = 10
    retry_s: Seconds = 2

    @model_validator(mode="after")
    def _lease_makes_sense(self) -> Self:
        if not self.retry_s < self.renew_within_s < self.lease_s:
            raise ValueError("retry_s must be less than renew_within_s, and that less than lease_s")
        return self


class ExpirySettings(EndSettings, KeepingSettings):
    """The reservation expiry."""

    health_listen: HealthListen = None  # with --watch
    enforcement: PodEndSettings = Field(default_factory=PodEndSettings)


class StandaloneSettings(ApiSettings, ProcessorSettings, ExpirySettings, UpdaterSettings):
    """All in one process."""

    access_log: Annotated[str, Field(max_length=4096)] = "access.log"
    update_every_s: Seconds = 30
    expire_every_s: Seconds = 60  # behind the processor, which ends what is due by itself

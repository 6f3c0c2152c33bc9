"""Settings, from the environment (prefix `GPU_DEV_`, `__` for nesting) and, for secrets, from files.

`GPU_DEV_SECRETS_DIR` names a directory in which a file `gpu_dev_database_url` may hold the database's URL,
`gpu_dev_database_password` its password, and `gpu_dev_smtp_password` the mail server's.
"""

import os
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, assert_never

from pydantic import AfterValidator, AliasChoices, BeforeValidator, Field, HttpUrl, SecretStr
from pydantic_settings import NoDecode, SettingsConfigDict

from reservation_core.domain.history.retention import RetentionRules
from reservation_core.domain.network.client_addresses import trusted_networks
from reservation_core.domain.request_terms import MOST_CPUS
from reservation_core.runtime.settings.auth import AuthSettings
from reservation_core.runtime.settings.gpus import GpuSettings, HealthSettings
from reservation_core.runtime.settings.http import HttpSettings
from reservation_core.runtime.settings.kubernetes import KubernetesSettings, PodEndSettings
from reservation_core.runtime.settings.notices import NoticeSettings, SmtpSettings
from reservation_core.runtime.settings.placement import PlacementSettings
from reservation_core.runtime.settings.retention import RetentionSettings
from reservation_core.runtime.settings.section import EnvironmentSettings, MemorySize, Seconds, WarningTimes, split
from reservation_core.runtime.settings.ssh import SshSettings
from reservation_core.runtime.settings.user_data import DiskSettings, SyncSettings
from reservation_core.runtime.settings.web import WebSettings


class ClusterKind(StrEnum):
    """What runs pods."""

    LOCAL = "local"
    KUBERNETES = "kubernetes"


class UnknownPodRule(StrEnum):
    """How to treat unknown pods, which have our labels but no row in the ledger."""

    REPORT = "report"
    END = "end"


class Holders(StrEnum):
    """The users who see the holders of GPUs and bookings, besides administrators."""

    EVERYONE = "everyone"
    MEMBERS = "members"
    SELF = "self"


def _upper(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


def _none_if_empty(value: object) -> object:
    return None if value == "" else value


LogLevel = Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], BeforeValidator(_upper)]
# The address of /healthz and /readyz, such as 0.0.0.0:8081; None: nowhere.
HealthListen = Annotated[str, Field(min_length=3, max_length=300)] | None
CronJobs = Annotated[
    tuple[Annotated[str, Field(pattern=r"^[a-z0-9]([-.a-z0-9]{0,50}[a-z0-9])?$")], ...],
    NoDecode,
    BeforeValidator(split),
    Field(max_length=20),
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


def _without_secrets(url: HttpUrl | None) -> HttpUrl | None:
    if url is None:
        return None
    if url.username or url.password or url.query:
        raise ValueError("can't have a password or a query, which would be logged: use OTEL_EXPORTER_OTLP_HEADERS")
    if url.path in (None, "/"):
        raise ValueError("needs the collector's path, usually /v1/traces")
    return url


TracesUrl = Annotated[HttpUrl | None, BeforeValidator(_none_if_empty), AfterValidator(_without_secrets)]

# In lower case, and without the `*.` that it may be written with.
AppsHost = Annotated[
    str,
    BeforeValidator(lambda value: value.lower().removeprefix("*.") if isinstance(value, str) else value),
    Field(pattern=r"^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*)?$", max_length=200),
]


class CommonSettings(EnvironmentSettings):
    """Settings of every process."""

    model_config = SettingsConfigDict(
        env_prefix="GPU_DEV_",
        env_nested_delimiter="__",
        extra="ignore",
        hide_input_in_errors=True,
        secrets_dir=os.environ.get("GPU_DEV_SECRETS_DIR"),
    )

    home: Path = Path(".gpu-dev")
    database_url: SecretStr | None = None
    # The password for this URL and the replica's, if they have none.
    database_password: SecretStr | None = None
    # Keys that seal jobs' variables, and addresses and secrets of webhooks, in the database: base64 of 32 bytes, one a
    # line. The first key seals, all keys open. None: stored as plain text.
    seal_key_file: Path | None = None
    # Keys that seal users' secrets in the database, in the same form. None: those of `GPU_DEV_SEAL_KEY_FILE`; without
    # either no secret is stored.
    secrets_key_file: Path | None = None
    # Every pod operation holds a connection during its calls to the cluster; planner, lease and requests need more.
    database_pool: Annotated[int, Field(ge=1, le=200)] = 20
    # How long programs that run once (expiry, updater) wait at their start for the database.
    database_wait_s: Annotated[float, Field(ge=0, le=3600)] = 30
    cluster: ClusterKind = ClusterKind.LOCAL
    local_gpus: str | None = None
    # CPUs, and memory such as 64Gi, that jobs can have of each node of a local cluster. None: what this machine has.
    local_cpus: Annotated[int, Field(ge=1, le=MOST_CPUS)] | None = None
    local_memory: MemorySize | None = None
    # The part of each node's CPUs and memory that is kept for jobs without GPUs; jobs with GPUs have the rest. None: a
    # local cluster keeps a tenth, at least 1 CPU and 2 GiB, nothing if that is over half; Kubernetes keeps nothing.
    cpu_job_share: Annotated[float, Field(ge=0, le=0.9)] | None = None
    # A folder of cgroup v2 that this user may write: jobs are kept there to the CPUs and memory that they ask for.
    local_cgroup: Path | None = None
    # A recording of the use of GPUs, which the simulated GPUs of GPU_DEV_LOCAL_GPUS play back again and again.
    local_use: Path | None = None
    # Time between two samples of the use of GPUs.
    sample_every_s: Annotated[float, Field(ge=1, le=600)] = 10
    gpu: GpuSettings = Field(default_factory=GpuSettings)
    kubernetes: KubernetesSettings = Field(default_factory=KubernetesSettings)
    http: HttpSettings = Field(default_factory=HttpSettings)
    retention: RetentionSettings = Field(default_factory=RetentionSettings)
    sync: SyncSettings = Field(default_factory=SyncSettings)
    disks: DiskSettings = Field(default_factory=DiskSettings)
    # Where traces of jobs go, by OTLP over HTTP: such as http://otel-collector:4318/v1/traces. None: there are none.
    traces_url: TracesUrl = None
    log_level: LogLevel = "INFO"
    log_json: bool = True


class StartSettings(CommonSettings):
    """Settings of processes that need the start allowance of pods."""

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
        return self.retention.rules(idempotency_s=self.idempotency_keep_s, logs_s=self.log_keep_s)


class GraceSettings(StartSettings):
    """Settings of the planner, and of the API, which says what the planner would do: they must be alike."""

    end_grace_s: Seconds = 10
    # The API's address for programs in jobs, which extend their job and pass its files; there it is GPU_DEV_JOB_SERVER.
    job_server: Annotated[str, Field(pattern=r"^https?://\S+$", max_length=300)] | None = None
    release_s: Annotated[float, Field(ge=0, le=3600)] | None = None  # after the grace, until pods are seen to be gone
    promises: Annotated[int, Field(ge=0, le=100_000)] = (
        10_000  # the number of waiting jobs that get a slot in the calendar; while preemptible jobs run, 1 at least
    )
    estimates: Annotated[int, Field(ge=0, le=100_000)] = (
        500  # how many waiting jobs are told when they are likely to start
    )
    # How much later than its first slot a job is promised its start: so much time short work may pass before it.
    promise_slack_s: Annotated[float, Field(ge=0, le=86_400 * 30)] = 0
    # The half-life of usage, which orders jobs of equal priority in the queue; 0: it does not.
    fair_share_half_life_s: Annotated[float, Field(ge=0, le=86_400 * 400)] = 86_400 * 7
    placement: PlacementSettings = Field(default_factory=PlacementSettings)

    @property
    def fair_share_half_life(self) -> timedelta | None:
        """The half-life of usage; None: it orders nothing."""
        return timedelta(seconds=self.fair_share_half_life_s) if self.fair_share_half_life_s else None

    @property
    def end_grace(self) -> timedelta:
        """How long pods have between SIGTERM and SIGKILL."""
        return timedelta(seconds=self.end_grace_s)

    @property
    def turnaround(self) -> timedelta:
        """How long after a job's end its GPUs may still be in use; the next slot begins afterwards."""
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
    """Settings of processes that serve the waitlist."""

    offer_s: Seconds = 1800  # how long an offer to a waiting request holds its GPUs

    @property
    def offer(self) -> timedelta:
        """The lifetime of an offer."""
        return timedelta(seconds=self.offer_s)


class CalendarSettings(WaitlistSettings):
    """Settings of the calendar: notifications and due changes of bookings."""

    starting_soon_s: WarningTimes = (86_400, 3600, 600)
    ending_soon_s: WarningTimes = (86_400, 3600, 600)
    no_show_grace_s: Seconds | None = None  # how long a booking may stay unused by default; None: for ever

    @property
    def no_show_grace(self) -> timedelta | None:
        """How long a booking may stay unused by default."""
        return None if self.no_show_grace_s is None else timedelta(seconds=self.no_show_grace_s)


class EndSettings(StartSettings, CalendarSettings):
    """Settings of processes that end jobs, warn before, and give up starts: the leading processor and the expiry."""

    warn_before_s: WarningTimes = (1800, 900, 300)
    max_starts: Annotated[int, Field(ge=1, le=100)] = 3
    ending_patience_s: Seconds = 60


class SessionSettings(CommonSettings):
    """Settings of processes that let users into jobs."""

    # The number of connections to jobs that a user may have at once: terminals, programs and ports.
    connections_per_user: Annotated[int, Field(ge=1, le=100_000)] = 500
    ssh: SshSettings = Field(default_factory=SshSettings)


class SshGatewaySettings(SessionSettings):
    """The SSH gateway."""

    health_listen: HealthListen = None


class ApiSettings(GraceSettings, WaitlistSettings, SessionSettings):
    """The API service."""

    listen: str = "127.0.0.1:8080"
    # PEM files, both or neither: the certificate with its chain, and its key. With them the API serves TLS alone.
    tls_cert: Path | None = None
    tls_key: Path | None = None
    # A separate address for /metrics without TLS, such as 0.0.0.0:9090. None: on the API's address.
    metrics_listen: HealthListen = None
    # How many GPUs /metrics shows one by one, with their live jobs: the first ones by node and index. 0: none.
    # Unset, none at an API address that is not of this machine alone.
    metrics_gpus: Annotated[int, Field(ge=0, le=100_000)] = 5000
    # The access log, a line for each request: `-` for the process's log, a file (relative to GPU_DEV_HOME), or empty.
    access_log: Annotated[str, Field(max_length=4096)] = "-"
    # A streaming replica of the database for lists and heavy reads; empty: all on the primary.
    database_replica_url: Annotated[SecretStr | None, BeforeValidator(_none_if_empty)] = None
    # How long a read waits for the replica to catch up; afterwards the primary is read.
    database_replica_wait_s: Annotated[float, Field(gt=0, le=5)] = 0.25
    # How long a request waits for a database connection, and for each statement; afterwards it gets 503.
    database_patience_s: Annotated[float, Field(ge=0.1, le=60)] = 4
    # The same for statements of heavy reads: lists, free time, usage, metrics.
    database_read_patience_s: Annotated[float, Field(ge=0.1, le=60)] = 30
    # Addresses or CIDR ranges of proxies whose X-Forwarded-For is trusted.
    trusted_proxies: Proxies = ()
    max_body_bytes: Annotated[int, Field(ge=1024, le=16 * 2**20)] = 256 * 1024
    max_duration_s: Seconds = 86_400 * 30
    # The longest time for a simulation of the queue, of which one runs at a time.
    simulation_s: Annotated[float, Field(ge=1, le=3600)] = 50
    token_cache_s: Annotated[float, Field(ge=0, le=60)] = 2.0
    submit_batch: Annotated[int, Field(ge=1, le=1000)] = 100
    # The number of jobs that a user's programs may follow at once (`gpu-dev run`, `logs --follow`), per API process.
    streams_per_user: Annotated[int, Field(ge=1, le=100_000)] = 200
    # The names below which apps of jobs have their addresses, JOB-PORT.<this>, such as *.apps.example.org; empty: apps
    # are not served. The names lead to this server (DNS and certificate have the wildcard).
    apps_host: AppsHost = "localhost"
    # everyone: all users; members: members of a project with the holder; self: the holder alone.
    holders: Holders = Holders.EVERYONE
    auth: AuthSettings = Field(default_factory=AuthSettings)
    web: WebSettings = Field(default_factory=WebSettings)
    web_oidc_client_secret: SecretStr | None = None
    policy_file: Path | None = None  # TOML: rules by scope, applied at the start when the file has changed

    @property
    def max_duration(self) -> timedelta:
        """The longest duration of a job, including extensions."""
        return timedelta(seconds=self.max_duration_s)


class ProcessorSettings(GraceSettings, EndSettings, KeepingSettings):
    """The reservation processor."""

    health_listen: HealthListen = None  # a processor within `make up` uses the API's
    cron_jobs: CronJobs = ()  # in the pod's own namespace: /metrics shows when they last succeeded
    lease_s: Seconds = 3
    sweep_s: Seconds = 0.5
    resync_s: Seconds | None = None  # by default 5 s on a local cluster, 60 s on Kubernetes, which has watches
    reload_s: Seconds = 60
    unknown_pods: UnknownPodRule = UnknownPodRule.REPORT
    log_keep_lines: Annotated[int, Field(ge=0, le=100_000)] = 1000
    plan_batch: Annotated[int, Field(ge=1, le=100_000)] = 1000
    plan_window: Annotated[int, Field(ge=10, le=1_000_000)] = 20_000
    slot_batch: Annotated[int, Field(ge=1, le=10_000)] = (
        100  # jobs that get slots between two searches for jobs that can start
    )
    slot_batches: Annotated[int, Field(ge=1, le=10_000)] = 60
    slot_s: Annotated[float, Field(ge=0.0001, le=1)] = 0.002  # longest time for these jobs
    estimate_s: Seconds = 1
    fair_share_every_s: Seconds = 60
    pod_operations_parallel: Annotated[int, Field(ge=1, le=1000)] = 8
    pod_operations_per_s: Annotated[float, Field(gt=0, le=100_000)] = 200
    max_reads: Annotated[int, Field(ge=1, le=100)] = 5
    visibility_s: Seconds = 10
    health: HealthSettings = Field(default_factory=HealthSettings)
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
        """How long after an unanswered create its pod may still appear."""
        match self.cluster:
            case ClusterKind.LOCAL:
                return timedelta(0)
            case ClusterKind.KUBERNETES:
                return timedelta(seconds=self.kubernetes.call_limit_s + self.kubernetes.late_s)
            case _:
                assert_never(self.cluster)


class UpdaterSettings(CommonSettings):
    """The availability updater."""

    @property
    def kept_for_cpu_jobs(self) -> float | None:
        return 0.0 if self.cpu_job_share is None and self.cluster is ClusterKind.KUBERNETES else self.cpu_job_share


class NodeAgentSettings(CommonSettings):
    """The node agent. Manifests usually set `NODE_NAME` to the pod's node."""

    node_name: Annotated[str, Field(validation_alias=AliasChoices("NODE_NAME", "GPU_DEV_NODE_NAME"))]
    look_every_s: Seconds = 60
    # Where the processor asks how the node's GPUs are used (GPU_DEV_KUBERNETES__AGENT_PORT). None: nowhere.
    samples_listen: HealthListen = None


class ExpirySettings(EndSettings, KeepingSettings):
    """The reservation expiry."""

    health_listen: HealthListen = None  # with --watch
    enforcement: PodEndSettings = Field(default_factory=PodEndSettings)


class StandaloneSettings(ApiSettings, ProcessorSettings, ExpirySettings, UpdaterSettings):
    """All in one process."""

    access_log: Annotated[str, Field(max_length=4096)] = "access.log"
    update_every_s: Seconds = 30
    expire_every_s: Seconds = 60  # a backup of the processor, which ends due jobs itself

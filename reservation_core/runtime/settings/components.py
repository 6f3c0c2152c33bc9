"""Settings, from the environment (prefix `GPU_DEV_`, `__` for nesting) and, for secrets, from files.

`GPU_DEV_SECRETS_DIR` names a directory in which a file `gpu_dev_database_url` may hold the database's URL,
`gpu_dev_database_password` its password, and `gpu_dev_smtp_password` the mail server's.
"""

import os
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, assert_never

from pydantic import AliasChoices, BeforeValidator, Field, SecretStr
from pydantic_settings import SettingsConfigDict

from reservation_core.domain.history.retention import RetentionRules
from reservation_core.domain.request_terms import MOST_CPUS
from reservation_core.runtime.settings.auth import AuthSettings
from reservation_core.runtime.settings.gpus import GpuSettings, HealthSettings
from reservation_core.runtime.settings.http import HttpSettings
from reservation_core.runtime.settings.kubernetes import KubernetesSettings, PodEndSettings
from reservation_core.runtime.settings.notices import NoticeSettings, SmtpSettings
from reservation_core.runtime.settings.placement import PlacementSettings
from reservation_core.runtime.settings.retention import RetentionSettings
from reservation_core.runtime.settings.section import EnvironmentSettings, MemorySize, Seconds, WarningTimes
from reservation_core.runtime.settings.ssh import SshSettings
from reservation_core.runtime.settings.user_data import DiskSettings, SyncSettings
from reservation_core.runtime.settings.values import (
    AppsHost,
    CronJobs,
    HealthListen,
    LogLevel,
    Proxies,
    TracesUrl,
    none_if_empty,
)
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


class CommonSettings(EnvironmentSettings):
    """Settings of every process."""

    model_config = SettingsConfigDict(
        defer_build=True,  # a process uses one of these classes
        env_prefix="GPU_DEV_",
        env_nested_delimiter="__",
        extra="ignore",
        hide_input_in_errors=True,
        secrets_dir=os.environ.get("GPU_DEV_SECRETS_DIR"),
    )

    home: Path = Path(".gpu-dev")  # the folder of data, job logs and the admin token
    database_url: SecretStr | None = None  # a PostgreSQL database; none: standalone starts an embedded one
    # The password for GPU_DEV_DATABASE_URL and the replica's URL, if they have none.
    database_password: SecretStr | None = None
    # Keys that seal jobs' variables, and addresses and secrets of webhooks, in the database: base64 of 32 bytes, one a
    # line. The first key seals, all keys open. None: stored as plain text.
    seal_key_file: Path | None = None
    # Keys that seal users' secrets in the database, in the form of GPU_DEV_SEAL_KEY_FILE. None: the keys of that file;
    # without either no secret is stored.
    secrets_key_file: Path | None = None
    # The most connections of a process's pool, besides a few for listening. Every pod operation holds one during its
    # calls to the cluster; planner, lease and requests need more.
    database_pool: Annotated[int, Field(ge=1, le=200)] = 20
    # How long programs that run once (expiry, updater) wait at their start for the database.
    database_wait_s: Annotated[float, Field(ge=0, le=3600)] = 30
    cluster: ClusterKind = ClusterKind.LOCAL  # what runs pods: local, this machine; or kubernetes
    local_gpus: str | None = None  # simulated GPUs, such as h100:4 or a=h100:8;b=t4:2; none: this machine's
    # CPUs that jobs can have of each node of a local cluster; none: this machine's.
    local_cpus: Annotated[int, Field(ge=1, le=MOST_CPUS)] | None = None
    # Memory, such as 64Gi, that jobs can have of each node of a local cluster; none: this machine's.
    local_memory: MemorySize | None = None
    # The part of each node's CPUs and memory that is kept for jobs without GPUs; jobs with GPUs have the rest. None: a
    # local cluster keeps a tenth, and at least 1 CPU and 2 GiB, but nothing if that is over half; Kubernetes keeps
    # nothing.
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
    log_level: LogLevel = "INFO"  # the least level of log lines: DEBUG, INFO, WARNING, ERROR
    log_json: bool = True  # whether log lines are JSON; false: plain text


class StartSettings(CommonSettings):
    """Settings of processes that need the start allowance of pods."""

    start_allowance_s: Seconds = 120  # how long pods may take from allocation to running

    @property
    def start_allowance(self) -> timedelta:
        """How long pods may take from allocation to running."""
        return timedelta(seconds=self.start_allowance_s)


class KeepingSettings(CommonSettings):
    """Settings of processes that remove old rows."""

    idempotency_keep_s: Seconds = 86_400  # how long answers to repeated requests are kept
    log_keep_s: Seconds = 86_400 * 7  # how long output of pods that are gone is kept

    @property
    def retention_rules(self) -> RetentionRules:
        return self.retention.rules(idempotency_s=self.idempotency_keep_s, logs_s=self.log_keep_s)


class GraceSettings(StartSettings):
    """Settings of the planner, and of the API, which says what the planner would do: they must be alike."""

    end_grace_s: Seconds = 10  # time between SIGTERM and SIGKILL at a job's end
    # The API's address for programs in jobs, which extend their job and pass its files; jobs get it as
    # GPU_DEV_JOB_SERVER.
    job_server: Annotated[str, Field(pattern=r"^https?://\S+$", max_length=300)] | None = None
    # How long after SIGKILL pods may still hold GPUs; none: 0 s local, 2 s on Kubernetes
    release_s: Annotated[float, Field(ge=0, le=3600)] | None = None
    # How many waiting jobs get a slot in the calendar; while preemptible jobs run, at least 1.
    promises: Annotated[int, Field(ge=0, le=100_000)] = 10_000
    estimates: Annotated[int, Field(ge=0, le=100_000)] = 500  # How many waiting jobs get an estimated start.
    # How much later than its first slot a job's start is promised: time for short jobs to go first.
    promise_slack_s: Annotated[float, Field(ge=0, le=86_400 * 30)] = 0
    # The half-life of usage, which orders jobs of equal priority in the queue; 0: usage orders nothing.
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

    # When owners are notified before a booking starts, in seconds before
    starting_soon_s: WarningTimes = (86_400, 3600, 600)
    # When owners are notified before a booking ends, in seconds before
    ending_soon_s: WarningTimes = (86_400, 3600, 600)
    no_show_grace_s: Seconds | None = None  # how long a booking may stay unused by default; none: for ever

    @property
    def no_show_grace(self) -> timedelta | None:
        """How long a booking may stay unused by default."""
        return None if self.no_show_grace_s is None else timedelta(seconds=self.no_show_grace_s)


class EndSettings(StartSettings, CalendarSettings):
    """Settings of processes that end jobs, warn before, and give up starts: the leading processor and the expiry."""

    warn_before_s: WarningTimes = (1800, 900, 300)  # when a job's owner is warned before its end, in seconds before
    max_starts: Annotated[int, Field(ge=1, le=100)] = 3  # how often a job's start is tried
    ending_patience_s: Seconds = 60  # how long an end may take before it is requested again


class SessionSettings(CommonSettings):
    """Settings of processes that let users into jobs."""

    # The most connections to jobs that a user may have at once: terminals, programs and ports.
    connections_per_user: Annotated[int, Field(ge=1, le=100_000)] = 500
    ssh: SshSettings = Field(default_factory=SshSettings)


class SshGatewaySettings(SessionSettings):
    """The SSH gateway."""

    health_listen: HealthListen = None


class ApiSettings(GraceSettings, WaitlistSettings, SessionSettings):
    """The API service."""

    listen: str = "127.0.0.1:8080"  # the address and port of the API and the pages
    # PEM files, both or neither: the certificate with its chain, and its key. With them the API serves TLS alone.
    tls_cert: Path | None = None
    tls_key: Path | None = None  # the key of GPU_DEV_TLS_CERT
    # A separate address for /metrics without TLS, such as 0.0.0.0:9090. None: on the API's address.
    metrics_listen: HealthListen = None
    # How many GPUs /metrics shows one by one, with their live jobs: the first ones by node and index. 0: none. Unset:
    # none where other machines reach the API's address.
    metrics_gpus: Annotated[int, Field(ge=0, le=100_000)] = 5000
    # The access log, a line for each request: `-` for the process's log, a file (relative to GPU_DEV_HOME), or empty.
    access_log: Annotated[str, Field(max_length=4096)] = "-"
    # A streaming replica of the database for lists and heavy reads; empty: all on the primary.
    database_replica_url: Annotated[SecretStr | None, BeforeValidator(none_if_empty)] = None
    # How long a read waits for the replica to catch up; afterwards the primary is read.
    database_replica_wait_s: Annotated[float, Field(gt=0, le=5)] = 0.25
    # How long a request waits for a database connection, and for each statement; afterwards it gets 503.
    database_patience_s: Annotated[float, Field(ge=0.1, le=60)] = 4
    # How long a statement of a heavy read may take: lists, free time, usage, metrics.
    database_read_patience_s: Annotated[float, Field(ge=0.1, le=60)] = 30
    # Addresses or CIDR ranges of proxies whose X-Forwarded-For is trusted.
    trusted_proxies: Proxies = ()
    max_body_bytes: Annotated[int, Field(ge=1024, le=16 * 2**20)] = 256 * 1024  # the largest request
    max_duration_s: Seconds = 86_400 * 30  # the longest duration of a job, with extensions
    # The longest time for a simulation of the queue; one runs at a time.
    simulation_s: Annotated[float, Field(ge=1, le=3600)] = 50
    # How long a process uses a token or policy that another process has revoked or changed
    token_cache_s: Annotated[float, Field(ge=0, le=60)] = 2.0
    submit_batch: Annotated[int, Field(ge=1, le=1000)] = 100  # jobs that are stored in one transaction, at most
    # The number of jobs that a user's programs may follow at once (`gpu-dev run`, `logs --follow`), per API process.
    streams_per_user: Annotated[int, Field(ge=1, le=100_000)] = 200
    # The names below which apps of jobs have their addresses, JOB-PORT.<this>, such as *.apps.example.org; empty: apps
    # are not served. The names lead to this server (DNS and certificate have the wildcard).
    apps_host: AppsHost = "localhost"
    # The users who see the holders of GPUs and bookings: everyone: all users; members: members of a project with the
    # holder; self: the holder alone. Administrators always do.
    holders: Holders = Holders.EVERYONE
    auth: AuthSettings = Field(default_factory=AuthSettings)
    web: WebSettings = Field(default_factory=WebSettings)
    web_oidc_client_secret: SecretStr | None = None  # the client secret at GPU_DEV_WEB__OIDC_ISSUER, if any
    policy_file: Path | None = None  # TOML: rules by scope, applied at the start when the file has changed

    @property
    def max_duration(self) -> timedelta:
        """The longest duration of a job, including extensions."""
        return timedelta(seconds=self.max_duration_s)


class ProcessorSettings(GraceSettings, EndSettings, KeepingSettings):
    """The reservation processor."""

    # The address of /healthz, /readyz and /metrics. None: nowhere; standalone has them at the API's address.
    health_listen: HealthListen = None
    cron_jobs: CronJobs = ()  # CronJobs of the pod's own namespace: /metrics shows when they last succeeded
    lease_s: Seconds = 3  # how long a silent leader stays the leader
    sweep_s: Seconds = 0.5  # time between two looks for work, besides every wake-up
    resync_s: Seconds | None = None  # how often rows are compared with pods; none: 5 s local, 60 s on Kubernetes
    reload_s: Seconds = 60  # how often the planner reads everything anew
    unknown_pods: UnknownPodRule = UnknownPodRule.REPORT  # pods of no known job: report them, or end them
    # Last lines of a job's output that stay when its pods go
    log_keep_lines: Annotated[int, Field(ge=0, le=100_000)] = 1000
    # Jobs that the planner starts in one transaction, at most
    plan_batch: Annotated[int, Field(ge=1, le=100_000)] = 1000
    # Waiting jobs of a GPU type that the planner looks at
    plan_window: Annotated[int, Field(ge=10, le=1_000_000)] = 20_000
    # Jobs that get slots between two searches for jobs that can start.
    slot_batch: Annotated[int, Field(ge=1, le=10_000)] = 100
    # The most batches of GPU_DEV_SLOT_BATCH jobs each time slots are given.
    slot_batches: Annotated[int, Field(ge=1, le=10_000)] = 60
    slot_s: Annotated[float, Field(ge=0.0001, le=1)] = 0.002  # time after which a batch ends; one step may take longer
    estimate_s: Seconds = 1  # time between two estimates of starts
    fair_share_every_s: Seconds = 60  # time between two reads of usage, which orders the queue
    pod_operations_parallel: Annotated[int, Field(ge=1, le=1000)] = 8  # pod operations at the same time, at most
    pod_operations_per_s: Annotated[float, Field(gt=0, le=100_000)] = 200  # pod operations a second, at most
    max_reads: Annotated[int, Field(ge=1, le=100)] = 5  # tries of a message before it is put aside as a dead letter
    visibility_s: Seconds = 10  # how long a message in work is hidden from others
    health: HealthSettings = Field(default_factory=HealthSettings)
    notices: NoticeSettings = Field(default_factory=NoticeSettings)
    smtp: SmtpSettings = Field(default_factory=SmtpSettings)
    smtp_password: SecretStr | None = None  # the password at the mail server

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

    # The name of the agent's node; NODE_NAME is read as well.
    node_name: Annotated[str, Field(validation_alias=AliasChoices("NODE_NAME", "GPU_DEV_NODE_NAME"))]
    look_every_s: Seconds = 60  # how often the agent reads the node's GPUs
    # Where the processor asks how the node's GPUs are used (GPU_DEV_KUBERNETES__AGENT_PORT). None: nowhere.
    samples_listen: HealthListen = None


class ExpirySettings(EndSettings, KeepingSettings):
    """The reservation expiry."""

    health_listen: HealthListen = None  # with --watch
    enforcement: PodEndSettings = Field(default_factory=PodEndSettings)


class StandaloneSettings(ApiSettings, ProcessorSettings, ExpirySettings, UpdaterSettings):
    """All in one process."""

    # The access log, a line for each request: - for the process's log, a file (relative to GPU_DEV_HOME), or empty.
    access_log: Annotated[str, Field(max_length=4096)] = "access.log"
    update_every_s: Seconds = 30  # how often the nodes are read
    # How often the expiry looks, the backstop of the processor, which ends due jobs itself
    expire_every_s: Seconds = 60

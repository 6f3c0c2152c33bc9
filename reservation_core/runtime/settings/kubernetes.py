"""Settings of the Kubernetes cluster."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from reservation_core.runtime.settings.section import Seconds, Section, WarningTimes


class KubernetesSettings(Section):
    """The API server, and the pods of jobs."""

    kubeconfig: Path | None = None  # default: the service account inside a cluster, else ~/.kube/config
    context: str | None = None
    # Overrides the API server's address of the kubeconfig or the cluster.
    server: Annotated[str, Field(pattern=r"^https?://[^\s/@]+(/[^\s@]*)?$", max_length=2000)] | None = None
    namespace: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")] = "gpu-dev"
    node_selector: str = ""  # label selector of our nodes; empty: all
    scheduler_name: str = "default-scheduler"
    default_image: str | None = None  # for jobs without an image
    # The image `session-tools`, which puts sftp-server, scp and rsync beside sessions whose images lack them.
    session_tools_image: str | None = None
    # An image of this server, such as that of the processor: jobs get from it the program that brings and keeps files.
    # None: jobs have no files.
    files_image: Annotated[str, Field(min_length=1, max_length=500)] | None = None
    # When nodes pull that image. None: by its tag, as Kubernetes does.
    files_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    pod_defaults: Path | None = None  # YAML: tolerations, runtimeClassName, imagePullSecrets, volumes …
    request_timeout_s: Seconds = 30  # for one attempt
    call_limit_s: Seconds = 40  # for a call with all attempts and the wait for its turn
    late_s: Annotated[float, Field(ge=0, le=3600)] = 60  # how much later a request that was given up may be carried out
    watch_silence_s: Seconds = 90  # a watch is restarted after this silence; bookmarks come every minute
    creates_per_s: Annotated[float, Field(ge=0, le=100_000)] = 50  # 0: no pacing
    # Added to a pod's activeDeadlineSeconds, which Kubernetes can only shorten, for later extensions.
    extension_room_s: Annotated[float, Field(ge=0, le=86_400 * 400)] = 86_400 * 30
    # The port at which node agents say how their GPUs are used. None: they are not asked, and there are no data.
    agent_port: Annotated[int, Field(ge=1, le=65_535)] | None = None
    # The StorageClass of users' disks; every node with GPUs must reach its volumes. None: users have no disks.
    disk_class: Annotated[str, Field(pattern=r"^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$")] | None = None
    # The VolumeSnapshotClass of disks' snapshots. None: users take no snapshots.
    snapshot_class: Annotated[str, Field(pattern=r"^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$")] | None = None
    # With ReadWriteOnce, jobs that have a disk at the same time must be on one node.
    disk_access: Literal["ReadWriteMany", "ReadWriteOnce"] = "ReadWriteMany"


class PodEndSettings(Section):
    """The end of foreign pods where bookings are enforced. Times are in seconds."""

    enabled: bool = False
    # Bookings are enforced in namespaces with this label; the webhook's configuration names the same.
    namespace_label: Annotated[str, Field(pattern=r"^[A-Za-z0-9][-A-Za-z0-9_./]{0,316}=[-A-Za-z0-9_.]{1,63}$")] = (
        "gpu-dev/enforce-bookings=true"
    )
    warn_before_s: WarningTimes = (1800, 900, 300)
    lead_s: Annotated[float, Field(ge=0, le=86_400)] = 60  # how long before a booking its GPUs are freed
    grace_s: Annotated[int, Field(ge=1, le=86_400)] = 30  # longest time between SIGTERM and SIGKILL
    budget_patience_s: Seconds = 600  # how long a PodDisruptionBudget may keep a pod that has to end
    override_budgets: bool = False  # then the pod is deleted; otherwise an Event is written and the eviction retried
    look_s: Seconds = 5  # how often the watching loop runs, besides every change of a pod
    events_per_s: Annotated[float, Field(gt=0, le=1000)] = 50
    # The namespace of the Lease; default: that of the service account.
    lease_namespace: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")] | None = None
    lease_s: Seconds = 15
    renew_within_s: Seconds = 10
    retry_s: Seconds = 2

    @model_validator(mode="after")
    def _lease_makes_sense(self) -> Self:
        if not self.retry_s < self.renew_within_s < self.lease_s:
            raise ValueError("retry_s must be less than renew_within_s, and that less than lease_s")
        return self

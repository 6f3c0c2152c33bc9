"""Settings of the Kubernetes cluster."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from reservation_core.runtime.settings.section import Seconds, Section, WarningTimes


class KubernetesSettings(Section):
    """The API server, and the pods of jobs."""

    kubeconfig: Path | None = None  # none: the service account inside a cluster, else ~/.kube/config
    context: str | None = None  # the context of the kubeconfig; none: its current one
    # The API server's address, in place of the kubeconfig's or the cluster's.
    server: Annotated[str, Field(pattern=r"^https?://[^\s/@]+(/[^\s@]*)?$", max_length=2000)] | None = None
    # The namespace of the pods of jobs
    namespace: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")] = "gpu-dev"
    node_selector: str = ""  # the label selector of nodes that this server uses; empty: all
    scheduler_name: str = "default-scheduler"  # the scheduler of the pods of jobs, where GPU_DEV_GPU__PIN is affinity
    default_image: str | None = None  # the image of jobs without one
    # The image `session-tools`, which puts sftp-server, scp and rsync beside sessions whose images lack them.
    session_tools_image: str | None = None
    # An image of this server, such as that of the processor: jobs get from it the program that brings and keeps files.
    # None: jobs have no files.
    files_image: Annotated[str, Field(min_length=1, max_length=500)] | None = None
    # When nodes pull GPU_DEV_KUBERNETES__FILES_IMAGE. None: by its tag, as Kubernetes does.
    files_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    # YAML: tolerations, runtimeClassName, imagePullSecrets, volumes … of all pods of jobs
    pod_defaults: Path | None = None
    request_timeout_s: Seconds = 30  # longest time for one attempt of a call to the API server
    call_limit_s: Seconds = 40  # longest time for a call, with all attempts and the wait for its turn
    # How long after a call was given up the API server may still carry it out
    late_s: Annotated[float, Field(ge=0, le=3600)] = 60
    watch_silence_s: Seconds = 90  # a watch is restarted after this silence; bookmarks come every minute
    # Pods and services created a second, at most; 0: no bound
    creates_per_s: Annotated[float, Field(ge=0, le=100_000)] = 50
    # Added to a pod's activeDeadlineSeconds for later extensions, as Kubernetes can only shorten it.
    extension_room_s: Annotated[float, Field(ge=0, le=86_400 * 400)] = 86_400 * 30
    # The port at which node agents answer how their GPUs are used. None: agents are not asked, and there are no data.
    agent_port: Annotated[int, Field(ge=1, le=65_535)] | None = None
    # The StorageClass of users' disks; every node with GPUs must reach its volumes. None: users have no disks.
    disk_class: Annotated[str, Field(pattern=r"^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$")] | None = None
    # The VolumeSnapshotClass of disks' snapshots. None: users take no snapshots.
    snapshot_class: Annotated[str, Field(pattern=r"^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$")] | None = None
    # How nodes mount a disk. With ReadWriteOnce, jobs that use a disk at the same time must be on one node.
    disk_access: Literal["ReadWriteMany", "ReadWriteOnce"] = "ReadWriteMany"


class PodEndSettings(Section):
    """The end of foreign pods where bookings are enforced. Times are in seconds."""

    enabled: bool = False  # whether pods that people made are ended where bookings are enforced
    # Bookings are enforced in namespaces with this label; the webhook's configuration must name the same one.
    namespace_label: Annotated[str, Field(pattern=r"^[A-Za-z0-9][-A-Za-z0-9_./]{0,316}=[-A-Za-z0-9_.]{1,63}$")] = (
        "gpu-dev/enforce-bookings=true"
    )
    warn_before_s: WarningTimes = (1800, 900, 300)  # when an Event warns of a pod's end, in seconds before
    lead_s: Annotated[float, Field(ge=0, le=86_400)] = 60  # how long before a booking its GPUs are freed
    grace_s: Annotated[int, Field(ge=1, le=86_400)] = 30  # longest time between SIGTERM and SIGKILL
    budget_patience_s: Seconds = 600  # how long a PodDisruptionBudget may keep a pod that has to end
    # What happens after GPU_DEV_ENFORCEMENT__BUDGET_PATIENCE_S: true: the pod is deleted; false: an Event is written,
    # and the eviction is tried again.
    override_budgets: bool = False
    look_s: Seconds = 5  # time between two looks at all pods, besides every change
    events_per_s: Annotated[float, Field(gt=0, le=1000)] = 50  # Kubernetes Events written a second, at most
    # The Lease's namespace; none: that of the service account.
    lease_namespace: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")] | None = None
    # How long the lease holder is believed without renewing its Lease; then another replica takes over
    lease_s: Seconds = 15
    renew_within_s: Seconds = 10  # the lease holder stops its work when it could not renew the Lease for so long
    retry_s: Seconds = 2  # time between two attempts to take or renew the Lease

    @model_validator(mode="after")
    def _lease_makes_sense(self) -> Self:
        if not self.retry_s < self.renew_within_s < self.lease_s:
            raise ValueError("retry_s must be less than renew_within_s, and that less than lease_s")
        return self

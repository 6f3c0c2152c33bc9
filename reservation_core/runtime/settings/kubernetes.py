"""Settings of the Kubernetes cluster."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from reservation_core.runtime.settings.section import Seconds, Section


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
    pod_defaults: Path | None = None  # YAML: tolerations, runtimeClassName, imagePullSecrets, volumes …
    request_timeout_s: Seconds = 30  # for one attempt
    call_limit_s: Seconds = 40  # for a call with all attempts and the wait for its turn
    late_s: Annotated[float, Field(ge=0, le=3600)] = 60  # how much later a request that was given up may be carried out
    watch_silence_s: Seconds = 90  # a watch is restarted after this silence; bookmarks come every minute
    creates_per_s: Annotated[float, Field(ge=0, le=100_000)] = 50  # 0: no pacing
    # Added to a pod's activeDeadlineSeconds, which Kubernetes can only shorten, for later extensions.
    extension_room_s: Annotated[float, Field(ge=0, le=86_400 * 400)] = 86_400 * 30

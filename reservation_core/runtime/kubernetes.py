"""Create a Kubernetes cluster from settings; a separate module, so that other processes don't import the client."""

import os
from datetime import timedelta

from reservation_core.adapters.kubernetes.api_server.credentials import Credentials
from reservation_core.adapters.kubernetes.api_server.retries import Transport
from reservation_core.adapters.kubernetes.jobs.cluster import ClusterRules, KubernetesCluster
from reservation_core.adapters.kubernetes.jobs.foreign_pods import ForeignRules
from reservation_core.adapters.kubernetes.nodes.agent_samples import AgentSamples
from reservation_core.adapters.kubernetes.nodes.node_reports import NodeRules
from reservation_core.adapters.kubernetes.other_objects.disk_claims import ClaimRules, DiskClaims
from reservation_core.adapters.kubernetes.pods.built_pods import PodRules
from reservation_core.adapters.kubernetes.pods.gpu_attaching import GpuAttach, GpuPin
from reservation_core.adapters.kubernetes.pods.pod_defaults import read_pod_defaults
from reservation_core.adapters.kubernetes.sessions.pod_streams import KubernetesPodStreams
from reservation_core.ports.clock import Clock
from reservation_core.ports.sessions.pod_streams import PodStreams
from reservation_core.runtime.lease_namespace import lease_namespace
from reservation_core.runtime.settings.components import CommonSettings


def open_kubernetes(settings: CommonSettings, clock: Clock) -> KubernetesCluster:
    """The cluster of the settings, without a request to it. Raises KubeconfigError and BadPodDefaultsError."""
    return KubernetesCluster(open_transport(settings), cluster_rules(settings), clock)


def open_pod_streams(settings: CommonSettings) -> PodStreams:
    """The ways into the pods of the settings' namespace, without a request. Raises KubeconfigError."""
    return KubernetesPodStreams(open_transport(settings), settings.kubernetes.namespace)


def open_agent_samples(settings: CommonSettings, port: int) -> AgentSamples:
    """The samples of node agents in this pod's own namespace, without a request. Raises KubeconfigError."""
    return AgentSamples(open_transport(settings), lease_namespace(None), port)


def open_disk_claims(settings: CommonSettings, storage_class: str) -> DiskClaims:
    """The claims of users' disks, without a request. Raises KubeconfigError."""
    kubernetes = settings.kubernetes
    rules = ClaimRules(kubernetes.namespace, storage_class, kubernetes.disk_access, kubernetes.snapshot_class)
    return DiskClaims(open_transport(settings), rules)


def open_transport(settings: CommonSettings) -> Transport:
    """The transport to the API server. Raises KubeconfigError."""
    kubernetes = settings.kubernetes
    credentials = Credentials(kubernetes.kubeconfig, kubernetes.context, os.environ, server=kubernetes.server)
    return Transport(credentials, kubernetes.request_timeout_s, kubernetes.call_limit_s)


def cluster_rules(settings: CommonSettings) -> ClusterRules:
    """The rules for our objects in the cluster. Raises BadPodDefaultsError."""
    gpu, kubernetes = settings.gpu, settings.kubernetes
    attach = GpuAttach(gpu.attach.value)
    defaults = read_pod_defaults(kubernetes.pod_defaults)
    pods = PodRules(
        namespace=kubernetes.namespace,
        attach=attach,
        pin=GpuPin(gpu.pin.value),
        scheduler_name=kubernetes.scheduler_name,
        default_image=kubernetes.default_image,
        session_tools_image=kubernetes.session_tools_image,
        files_image=kubernetes.files_image,
        files_pull_policy=kubernetes.files_pull_policy,
        defaults=defaults,
        extension_room=timedelta(seconds=kubernetes.extension_room_s),
        resource_name=gpu.resource_names[0],
    )
    nodes = NodeRules(
        attach=attach,
        resource_names=gpu.resource_names,
        type_labels=gpu.type_labels,
        types=gpu.types,
        tolerations=defaults.tolerations,
    )
    foreign = ForeignRules(
        namespace=kubernetes.namespace,
        attach=attach,
        resource_names=gpu.resource_names,
        device_classes=gpu.device_classes,
    )
    return ClusterRules(
        pods=pods,
        nodes=nodes,
        foreign=foreign,
        node_selector=kubernetes.node_selector,
        creates_per_s=kubernetes.creates_per_s,
        watch_silence_s=kubernetes.watch_silence_s,
    )

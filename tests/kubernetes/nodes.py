"""Nodes that a test kubelet stands for."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.kubernetes.api_client import JsonObject
from tests.kubernetes.emulated.store import stamp, utc_now

OUR_NODES = {"gpu-dev/node": "true"}
"""A label for the node selector setting of tests."""


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A node to register. `gpus` cards of `product`; `resource` is the extended resource that counts them."""

    name: str
    gpus: int = 4
    product: str = "NVIDIA-H100-80GB-HBM3"
    memory_mib: int = 81_559
    resource: str = "nvidia.com/gpu"
    labels: Mapping[str, str] = field(default_factory=lambda: OUR_NODES)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, str], ...] = ()
    zone: str | None = None
    cpu: str = "128"
    memory: str = "1024Gi"

    def body(self, kubelet_port: int) -> JsonObject:
        """The Node as its kubelet registers it; the status goes to the status subresource."""
        labels = {"kubernetes.io/hostname": self.name, **self.labels}
        if self.gpus:
            labels |= {
                f"{self.resource}.product": self.product,
                f"{self.resource}.memory": str(self.memory_mib),
                f"{self.resource}.count": str(self.gpus),
            }
        if self.zone:
            labels["topology.kubernetes.io/zone"] = self.zone
        return {
            "metadata": {"name": self.name, "labels": labels, "annotations": dict(self.annotations)},
            "spec": {"taints": [dict(taint) for taint in self.taints]} if self.taints else {},
            "status": self.status(kubelet_port),
        }

    def status(self, kubelet_port: int) -> JsonObject:
        """Capacity, conditions and where the kubelet is reached."""
        capacity = {"cpu": self.cpu, "memory": self.memory, "pods": "1000", "ephemeral-storage": "1Ti"}
        if self.gpus:
            capacity[self.resource] = str(self.gpus)
        return {
            "capacity": capacity,
            "allocatable": dict(capacity),
            "conditions": [ready_condition("True")],
            "addresses": [
                {"type": "InternalIP", "address": "127.0.0.1"},
                {"type": "Hostname", "address": self.name},
            ],
            # API servers since 1.36 pass WebSockets on to kubelets that say this, and speak SPDY to others.
            "declaredFeatures": ["ExtendWebSocketsToKubelet"],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet_port}},
            "nodeInfo": {
                "machineID": "",
                "systemUUID": "",
                "bootID": "",
                "kernelVersion": "6.1.0",
                "osImage": "Debian GNU/Linux 12 (bookworm)",
                "containerRuntimeVersion": "containerd://2.0.0",
                "kubeletVersion": "v1.36.0",
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
        }


def ready_condition(status: str) -> JsonObject:
    """The Ready condition: `True`, `False`, or `Unknown` as the node controller writes it for a silent node."""
    reason, message = {
        "True": ("KubeletReady", "kubelet is posting ready status"),
        "False": ("KubeletNotReady", "container runtime network not ready"),
        "Unknown": ("NodeStatusUnknown", "Kubelet stopped posting node status."),
    }[status]
    now = stamp(utc_now())
    return {
        "type": "Ready",
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }

"""How pods get to their node and to their GPUs: two settings of the cluster."""

from enum import StrEnum


class GpuAttach(StrEnum):
    """How a pod gets its GPUs.

    `uuid`: the container sees only its own GPUs; without UUIDs the pod is refused. `env`: the same where all UUIDs are
    known; else the container sees all GPUs of its node, and a variable has the indices of its own.
    `device-plugin`: the pod requests a number of GPUs and the kubelet chooses them; the ledger then only counts.
    """

    ENV = "env"
    UUID = "uuid"
    DEVICE_PLUGIN = "device-plugin"


class GpuPin(StrEnum):
    """How a pod gets to its node: through a scheduler with a required affinity, or by `nodeName`."""

    AFFINITY = "affinity"
    NODE_NAME = "nodeName"

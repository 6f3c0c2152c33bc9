"""How pods get to their node and to their GPUs: two choices of whoever runs the cluster."""

from enum import StrEnum


class GpuAttach(StrEnum):
    """How a pod gets its GPUs.

    `uuid`: its container gets only its own cards; without their UUIDs there is no pod. `env`: the same where all UUIDs
    are known; else the container sees all cards of its node and is told the indices of its own.
    `device-plugin`: it asks for a number of cards and the kubelet picks them; the ledger then only counts.
    """

    ENV = "env"
    UUID = "uuid"
    DEVICE_PLUGIN = "device-plugin"


class GpuPin(StrEnum):
    """How a pod gets to its node: through a scheduler that may choose no other, or by name."""

    AFFINITY = "affinity"
    NODE_NAME = "nodeName"

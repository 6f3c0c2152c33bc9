"""Settings of GPUs."""

from datetime import timedelta
from typing import Annotated

from pydantic import BeforeValidator, Field
from pydantic_settings import NoDecode

from reservation_core.adapters.kubernetes.pods.gpu_attaching import GpuAttach, GpuPin
from reservation_core.domain.gpu_use.gpu_errors import QuarantineRule
from reservation_core.runtime.settings.section import Section, split

Names = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=317)], ...],
    NoDecode,
    BeforeValidator(split),
    Field(min_length=1, max_length=20),
]


class GpuSettings(Section):
    """How GPUs are found on nodes, and how pods get them."""

    # How a pod gets its GPUs. uuid: the container sees its own GPUs alone; env: the same where all UUIDs are known,
    # else it sees all GPUs and a variable names its own; device-plugin: the kubelet chooses them.
    attach: GpuAttach = GpuAttach.ENV
    pin: GpuPin = GpuPin.AFFINITY  # How a pod gets to its node: affinity, through a scheduler, or nodeName, directly.
    # The resources of GPUs in node capacity and in foreign pods.
    resource_names: Names = ("nvidia.com/gpu", "amd.com/gpu")
    # The device classes and DRA drivers whose devices are GPUs; other claims are ignored.
    device_classes: Names = ("gpu.nvidia.com", "mig.nvidia.com", "gpu.amd.com")
    # The node labels with the GPU type; the first one that a node has counts.
    type_labels: Names = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "gpu-dev/gpu-type")
    # Own names of GPU products (lower case), before the built-in table: {"nvidia-weird-card": "h100"}.
    types: dict[str, str] = Field(default_factory=dict, max_length=1000)


class HealthSettings(Section):
    """When GPUs are quarantined for their errors."""

    quarantine_after: Annotated[int, Field(ge=0, le=100)] = 0  # how many occasions of errors quarantine a GPU; 0: never
    # The time within which occasions of errors are counted
    window_s: Annotated[float, Field(ge=60, le=86_400 * 7)] = 86_400
    slow: bool = True  # whether slow GPUs are reported

    @property
    def rule(self) -> QuarantineRule | None:
        """After how many errors, and within which time; None: never."""
        if not self.quarantine_after:
            return None
        return QuarantineRule(self.quarantine_after, timedelta(seconds=self.window_s))

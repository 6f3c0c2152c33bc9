"""Which extended resources are GPUs, or slices of them, as device plugins name them."""

from collections.abc import Collection

_NVIDIA = "nvidia.com/gpu"
_MIG_PREFIX = "nvidia.com/mig-"


def is_gpu_resource(name: str, resources: Collection[str]) -> bool:
    """Whether a resource is in `resources`, the time-sliced form of one (`….shared`), or a slice of an NVIDIA GPU."""
    if name in resources or name.removesuffix(".shared") in resources:
        return True
    return _NVIDIA in resources and name.startswith(_MIG_PREFIX)

"""Which extended resources are GPUs, or parts of them: as device plugins call them."""

from collections.abc import Collection

_NVIDIA = "nvidia.com/gpu"
_PARTS = "nvidia.com/mig-"


def is_gpu_resource(name: str, resources: Collection[str]) -> bool:
    """Whether a resource is one of `resources`, the same shared by time (`….shared`), or a part of an NVIDIA card."""
    if name in resources or name.removesuffix(".shared") in resources:
        return True
    return _NVIDIA in resources and name.startswith(_PARTS)

"""Environment variables that a job may set."""

import re

_GPU_ENV = frozenset({"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES"})
_GANG_ENV = frozenset({"NNODES", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT"})
RESERVED_ENV = _GPU_ENV | _GANG_ENV
RESERVED_ENV_PREFIX = "GPU_DEV_"
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


def fault_of_variable(name: str) -> str | None:
    """Why a job can't set a variable of this name; None where it can."""
    if not _ENV_NAME.fullmatch(name):
        return "names must be at most 128 letters, digits and _, and not begin with a digit"
    if name in RESERVED_ENV or name.startswith(RESERVED_ENV_PREFIX):
        return f"{name} is set by the server and can't be set by a job; remove it"
    return None

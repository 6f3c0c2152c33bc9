"""Which version this is."""

import platform
from importlib.metadata import version


def versions() -> dict[str, str]:
    """Of the program and of Python."""
    return {"version": f"v{version('gpu-dev-server')}", "python": platform.python_version()}

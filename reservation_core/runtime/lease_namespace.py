"""In which namespace a process has its Lease."""

import os
from pathlib import Path

_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def lease_namespace(chosen: str | None) -> str:
    """The one that is chosen, else the pod's own, else kube-system."""
    said = chosen or os.environ.get("POD_NAMESPACE")
    if said:
        return said
    try:
        return _OWN_NAMESPACE.read_text().strip()
    except FileNotFoundError:
        return "kube-system"

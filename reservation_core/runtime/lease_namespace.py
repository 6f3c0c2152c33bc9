"""The namespace of a process's Lease."""

import os
from pathlib import Path

_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def lease_namespace(chosen: str | None) -> str:
    """The chosen namespace, else the pod's own, else kube-system."""
    if namespace := chosen or os.environ.get("POD_NAMESPACE"):
        return namespace
    try:
        return _OWN_NAMESPACE.read_text().strip()
    except FileNotFoundError:
        return "kube-system"

"""What a pod says of its job's disks: pure, without a client. A disk is a PersistentVolumeClaim of its id's name."""

from typing import Any

from reservation_core.domain.disks.disk_uses import DISKS_VARIABLE
from reservation_core.domain.model import PodSpec


def disk_variables(spec: PodSpec) -> list[dict[str, Any]]:
    """Where the paths of disks begin: they are the paths themselves."""
    return [{"name": DISKS_VARIABLE, "value": ""}] if spec.workload.disks else []


def disk_mounts(spec: PodSpec) -> list[dict[str, Any]]:
    """Where the container has its disks; the kubelet keeps it from writing to those that it only reads."""
    return [
        {"name": _volume(use.disk_id), "mountPath": use.path, **({"readOnly": True} if use.read_only else {})}
        for use in spec.workload.disks
    ]


def disk_volumes(spec: PodSpec) -> list[dict[str, Any]]:
    """The claims of the pod's disks."""
    return [
        {"name": _volume(use.disk_id), "persistentVolumeClaim": {"claimName": use.disk_id}}
        for use in spec.workload.disks
    ]


def _volume(disk_id: str | None) -> str:
    return f"gpu-dev-{disk_id}"

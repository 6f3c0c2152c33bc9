"""Disks of a cluster: a PersistentVolumeClaim each, of the class that an administrator named, by the disk's id."""

from contextlib import suppress
from dataclasses import dataclass

from reservation_core.adapters.kubernetes.api_server.errors import (
    ApiServerError,
    ApiServerForbidsError,
    ConflictError,
    InvalidError,
    ObjectNotFoundError,
)
from reservation_core.adapters.kubernetes.api_server.refusals import explained, unavailable
from reservation_core.adapters.kubernetes.api_server.retries import MERGE_PATCH, ONLY_METADATA, Transport
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.disks.disks import DiskRefusedError

_CLAIMS = "persistentvolumeclaims"
_LABEL = "gpu-dev/disk"


@dataclass(frozen=True, slots=True)
class ClaimRules:
    """Where claims are, the StorageClass of their volumes, and how nodes may have a volume (`accessModes`)."""

    namespace: str
    storage_class: str
    access: str


class DiskClaims:
    """The claims of disks. A volume may come only with the first pod that has it, as its class says."""

    def __init__(self, transport: Transport, rules: ClaimRules) -> None:
        self._transport = transport
        self._rules = rules
        self._path = f"/api/v1/namespaces/{rules.namespace}/{_CLAIMS}"

    async def make(self, disk_id: str, size_bytes: int) -> None:
        """Create a claim, or ask for another size of one that is there. Raises DiskRefusedError."""
        try:
            await self._transport.request(
                "POST", self._path, body=self._claim(disk_id, size_bytes), accept=ONLY_METADATA
            )
        except ConflictError:
            await self._resize(disk_id, size_bytes)
        except ApiServerError as error:
            raise self._refusal(error, "create", disk_id) from error

    async def remove(self, disk_id: str) -> None:
        """Delete a claim. The cluster keeps it as long as a pod has it, and then does what its class says."""
        with explained("delete", _CLAIMS, self._rules.namespace), suppress(ObjectNotFoundError):
            await self._transport.request("DELETE", f"{self._path}/{disk_id}")

    async def used_bytes(self, disk_id: str) -> int | None:  # noqa: ARG002 -- as other stores have it
        """Not known, and not needed: a volume takes no more than its size."""
        return None

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    async def _resize(self, disk_id: str, size_bytes: int) -> None:
        body = {"spec": {"resources": _room(size_bytes)}}
        try:
            await self._transport.request(
                "PATCH", f"{self._path}/{disk_id}", body=body, content_type=MERGE_PATCH, accept=ONLY_METADATA
            )
        except ApiServerError as error:
            raise self._refusal(error, "patch", disk_id) from error

    def _claim(self, disk_id: str, size_bytes: int) -> dict[str, object]:
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": disk_id, "labels": {_LABEL: disk_id}},
            "spec": {
                "accessModes": [self._rules.access],
                "storageClassName": self._rules.storage_class,
                "resources": _room(size_bytes),
            },
        }

    def _refusal(self, error: ApiServerError, verb: str, disk_id: str) -> DiskRefusedError | ClusterUnavailableError:
        """What a refused claim means: the size can't be had now, or we may not ask."""
        named = isinstance(error, ApiServerForbidsError) and f'"{disk_id}" is forbidden' in error.message
        if isinstance(error, InvalidError) or named:
            return DiskRefusedError(
                f"The cluster refuses it: {error.message}. Ask for another size, or ask an administrator, who knows "
                f"the storage class {self._rules.storage_class} and the quota of the namespace {self._rules.namespace}."
            )
        return unavailable(error, verb, _CLAIMS, self._rules.namespace)


def _room(size_bytes: int) -> dict[str, object]:
    return {"requests": {"storage": str(size_bytes)}}

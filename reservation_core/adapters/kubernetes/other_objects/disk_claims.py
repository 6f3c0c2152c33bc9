"""Disks of a cluster: a PersistentVolumeClaim each, of the class that an administrator named, by the disk's id.

Their snapshots are VolumeSnapshots, by their ids; a clone is a claim that names what its volume begins with.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from reservation_core.adapters.kubernetes.api_server.errors import (
    ApiServerError,
    ApiServerForbidsError,
    InvalidError,
    ObjectNotFoundError,
)
from reservation_core.adapters.kubernetes.api_server.plain_json import as_list, as_mapping
from reservation_core.adapters.kubernetes.api_server.refusals import explained, unavailable
from reservation_core.adapters.kubernetes.api_server.retries import MERGE_PATCH, ONLY_METADATA, Transport
from reservation_core.adapters.kubernetes.pods.quantities import read_quantity
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.disks.disks import DiskCopy, DiskDelayedError, DiskRefusedError

_CLAIMS = "persistentvolumeclaims"
_SNAPSHOTS = "volumesnapshots"
_EVENTS = "events"
_GROUP = "snapshot.storage.k8s.io"
_LABEL = "gpu-dev/disk"
_MOST_WORDS = 400


@dataclass(frozen=True, slots=True)
class ClaimRules:
    """Where claims are, the StorageClass of their volumes, and how nodes may have a volume (`accessModes`).

    `snapshot_class` is the VolumeSnapshotClass of snapshots.
    """

    namespace: str
    storage_class: str
    access: str
    snapshot_class: str | None = None


class DiskClaims:
    """The claims of disks. A volume may come only with the first pod that has it, as its class says."""

    def __init__(self, transport: Transport, rules: ClaimRules) -> None:
        self._transport = transport
        self._rules = rules
        self._path = f"/api/v1/namespaces/{rules.namespace}/{_CLAIMS}"
        self._snapshots = f"/apis/{_GROUP}/v1/namespaces/{rules.namespace}/{_SNAPSHOTS}"

    async def make(self, disk_id: str, size_bytes: int) -> None:
        """Create a claim, or ask for another size of one that is there. Raises DiskRefusedError."""
        try:
            made = await self._created(self._path, self._claim(disk_id, size_bytes), disk_id)
        except ApiServerError as error:
            raise self._refusal(error, "create", disk_id) from error
        if _asked_bytes(made, size_bytes) < size_bytes:
            await self._resize(disk_id, size_bytes)

    async def remove(self, disk_id: str) -> None:
        """Delete a claim. The cluster keeps it as long as a pod has it, and then does what its class says."""
        with explained("delete", _CLAIMS, self._rules.namespace), suppress(ObjectNotFoundError):
            await self._transport.request("DELETE", f"{self._path}/{disk_id}")

    async def copy(self, copy: DiskCopy) -> int | None:
        """Take a VolumeSnapshot, or create a claim that begins with a disk or a snapshot.

        None until the snapshot can be used, or the claim has its volume. Raises DiskRefusedError.
        """
        if copy.clone_id is None:
            return await self._snapshot(copy)
        return await self._clone(copy)

    async def remove_snapshot(self, snapshot_id: str) -> None:
        """Delete a VolumeSnapshot. What becomes of the stored data is up to its class."""
        with explained("delete", _SNAPSHOTS, self._rules.namespace), suppress(ObjectNotFoundError):
            await self._transport.request("DELETE", f"{self._snapshots}/{snapshot_id}")

    async def measure(self, disk_id: str, size_bytes: int) -> int | None:  # noqa: ARG002 -- as other stores have it
        """Not known, and not needed: a volume takes no more than its size."""
        return None

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    async def _snapshot(self, copy: DiskCopy) -> int | None:
        body = {
            "apiVersion": f"{_GROUP}/v1",
            "kind": "VolumeSnapshot",
            "metadata": {"name": copy.target_id, "labels": {_LABEL: copy.disk_id}},
            "spec": {
                "volumeSnapshotClassName": self._rules.snapshot_class,
                "source": {"persistentVolumeClaimName": copy.disk_id},
            },
        }
        try:
            made = await self._created(self._snapshots, body, copy.target_id)
        except ObjectNotFoundError as error:
            raise DiskRefusedError(
                f"The cluster can't take snapshots: {error.message}. An administrator has to install"
                f" the VolumeSnapshots of {_GROUP}/v1 and their controller, and a driver that takes them."
            ) from error
        except ApiServerError as error:
            raise self._refusal(error, "create", copy.target_id, _SNAPSHOTS) from error
        status = as_mapping(made.get("status"))
        if (fault := as_mapping(status.get("error")).get("message")) is not None and not status.get("readyToUse"):
            raise DiskDelayedError(
                f"The cluster could not take it yet: {str(fault)[:_MOST_WORDS]}. An administrator finds more at the"
                f" VolumeSnapshot {copy.target_id}."
            )
        return copy.size_bytes if status.get("readyToUse") is True else None

    async def _clone(self, copy: DiskCopy) -> int | None:
        source = {"kind": "PersistentVolumeClaim", "name": copy.disk_id}
        if copy.snapshot_id is not None:
            source = {"apiGroup": _GROUP, "kind": "VolumeSnapshot", "name": copy.snapshot_id}
        body = self._claim(copy.target_id, copy.size_bytes)
        body["spec"]["dataSource"] = source
        try:
            made = await self._created(self._path, body, copy.target_id)
        except ApiServerError as error:
            raise self._refusal(error, "create", copy.target_id) from error
        is_empty = as_mapping(as_mapping(made.get("spec")).get("dataSource")).get("name") != source["name"]
        if is_empty and copy.deleted_at is None:  # a deleted one may have what a job wrote to it
            raise DiskRefusedError("The cluster has made it empty. Delete this disk, and clone the other one again.")
        match as_mapping(made.get("status")).get("phase"):
            case "Bound":
                return _asked_bytes(made, copy.size_bytes)
            case "Lost":
                raise DiskRefusedError("The cluster has lost its volume. Delete this disk, and clone again.")
            case _:
                await self._raise_if_it_failed(copy.target_id)
                return None

    async def _raise_if_it_failed(self, disk_id: str) -> None:
        """Raise DiskDelayedError with what the cluster said last, if it could not make a claim's volume."""
        about = {"regarding.kind": "PersistentVolumeClaim", "regarding.name": disk_id, "type": "Warning"}
        query = {"fieldSelector": ",".join(f"{field}={value}" for field, value in about.items())}
        path = f"/apis/events.k8s.io/v1/namespaces/{self._rules.namespace}/{_EVENTS}"
        with explained("list", _EVENTS, self._rules.namespace):
            found = await self._transport.request("GET", path, query=query)
        failures = sorted(map(as_mapping, as_list(found.get("items"))), key=_said_at)
        if failures:
            note = str(failures[-1].get("note"))
            raise DiskDelayedError(
                f"The cluster could not make its volume yet: {note[:_MOST_WORDS]}. Delete this disk, or ask an"
                f" administrator, who finds more at the claim {disk_id}."
            )

    async def _created(self, path: str, body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        """The object, created before or now: a quota that it has used up would refuse to create it again."""
        resource = path.rpartition("/")[2]
        with suppress(ObjectNotFoundError):
            try:
                return await self._transport.request("GET", f"{path}/{name}")
            except ApiServerForbidsError as error:
                raise unavailable(error, "get", resource, self._rules.namespace) from error
        return await self._transport.request("POST", path, body=body)

    async def _resize(self, disk_id: str, size_bytes: int) -> None:
        body = {"spec": {"resources": _room(size_bytes)}}
        try:
            await self._transport.request(
                "PATCH", f"{self._path}/{disk_id}", body=body, content_type=MERGE_PATCH, accept=ONLY_METADATA
            )
        except ApiServerError as error:
            raise self._refusal(error, "patch", disk_id) from error

    def _claim(self, disk_id: str, size_bytes: int) -> dict[str, Any]:
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

    def _refusal(
        self, error: ApiServerError, verb: str, disk_id: str, resource: str = _CLAIMS
    ) -> DiskRefusedError | ClusterUnavailableError:
        """What a refused claim means: the size can't be had now, or we may not ask."""
        named = isinstance(error, ApiServerForbidsError) and f'"{disk_id}" is forbidden' in error.message
        if isinstance(error, InvalidError) or named:
            return DiskRefusedError(
                f"The cluster refuses it: {error.message}. Ask for another size, or ask an administrator, who knows "
                f"the storage class {self._rules.storage_class} and the quota of the namespace {self._rules.namespace}."
            )
        return unavailable(error, verb, resource, self._rules.namespace)


def _room(size_bytes: int) -> dict[str, object]:
    return {"requests": {"storage": str(size_bytes)}}


def _asked_bytes(claim: Mapping[str, Any], usual: int) -> int:
    """The size that a claim was created with; the disk may have become larger since."""
    requests = as_mapping(as_mapping(as_mapping(claim.get("spec")).get("resources")).get("requests"))
    with suppress(ValueError):
        return min(usual, int(read_quantity(requests.get("storage"))))
    return usual


def _said_at(event: Mapping[str, Any]) -> str:
    """When an event was last said, in UTC; its programs write one of these times."""
    repeated = as_mapping(event.get("series")).get("lastObservedTime")
    return str(repeated or event.get("deprecatedLastTimestamp") or event.get("eventTime") or "")

"""Disks over REST."""

from collections.abc import Iterator
from urllib.parse import quote

from gpu_dev.calls.calls import Calls
from gpu_dev.wire.base import Page
from gpu_dev.wire.job_terms.disks import DiskChange, DiskCreate, DiskOut, SnapshotCreate, SnapshotOut

_PATH = "/v1/disks"


class DiskCalls(Calls):
    """Your disks, and for administrators those of `user`."""

    def disks(self, *, deleted: bool = False, user: str | None = None) -> Iterator[DiskOut]:
        """Disks by name, or deleted ones that can still be restored."""
        query = {"deleted": "true"} if deleted else {}
        return self._items(Page[DiskOut], _PATH, query if user is None else {**query, "user": user})

    def disk(self, name: str, user: str | None = None) -> DiskOut:
        """One disk."""
        return self._get(DiskOut, _address(name, user))

    def create(self, request: DiskCreate) -> DiskOut:
        """Create a disk, or clone one."""
        return self._post(DiskOut, _PATH, request)

    def change(self, name: str, request: DiskChange, user: str | None = None) -> DiskOut:
        """Rename, resize or hand over a disk."""
        return self._change("PATCH", DiskOut, _address(name, user), request)

    def delete(self, name: str, user: str | None = None) -> DiskOut:
        """Delete a disk, which is kept for a while."""
        return self._change("DELETE", DiskOut, _address(name, user))

    def restore(self, name: str, user: str | None = None) -> DiskOut:
        """Restore the disk of this name that was deleted last."""
        return self._post(DiskOut, _address(name, user, "/restore"))

    def take_snapshot(self, name: str, request: SnapshotCreate, user: str | None = None) -> SnapshotOut:
        """Take a snapshot of a disk."""
        return self._post(SnapshotOut, _address(name, user, "/snapshots"), request)

    def delete_snapshot(self, name: str, snapshot: str, user: str | None = None) -> SnapshotOut:
        """Delete a snapshot for good."""
        return self._change("DELETE", SnapshotOut, _address(name, user, f"/snapshots/{quote(snapshot, safe='')}"))


def _address(name: str, user: str | None, deed: str = "") -> str:
    of_user = "" if user is None else f"?user={quote(user, safe='')}"
    return f"{_PATH}/{quote(name, safe='')}{deed}{of_user}"

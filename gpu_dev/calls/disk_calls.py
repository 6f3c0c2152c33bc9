"""Disks over REST."""

from collections.abc import Iterator
from urllib.parse import quote

from gpu_dev.calls.calls import Calls
from gpu_dev.wire.base import Page
from gpu_dev.wire.job_terms.disks import DiskChange, DiskCreate, DiskOut

_PATH = "/v1/disks"


class DiskCalls(Calls):
    """Your disks."""

    def disks(self, *, deleted: bool = False) -> Iterator[DiskOut]:
        """Disks by name, or deleted ones that can still be restored."""
        return self._items(Page[DiskOut], _PATH, {"deleted": "true"} if deleted else {})

    def disk(self, name: str) -> DiskOut:
        """One disk."""
        return self._get(DiskOut, _address(name))

    def create(self, request: DiskCreate) -> DiskOut:
        """Create a disk."""
        return self._post(DiskOut, _PATH, request)

    def change(self, name: str, request: DiskChange) -> DiskOut:
        """Rename or resize a disk."""
        return self._change("PATCH", DiskOut, _address(name), request)

    def delete(self, name: str) -> DiskOut:
        """Delete a disk, which is kept for a while."""
        return self._change("DELETE", DiskOut, _address(name))

    def restore(self, name: str) -> DiskOut:
        """Restore the disk of this name that was deleted last."""
        return self._post(DiskOut, f"{_address(name)}/restore")


def _address(name: str) -> str:
    return f"{_PATH}/{quote(name, safe='')}"

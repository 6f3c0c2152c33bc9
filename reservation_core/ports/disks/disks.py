"""Disks: records of the database, and the store that has what is on them."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from reservation_core.domain.disks.disk_life import DiskState


class DiskRefusedError(Exception):
    """The store can't make a disk now: there is no room, say. The text tells people why, and what to do."""


class DiskDelayedError(DiskRefusedError):
    """The store has failed to make a copy, and goes on trying by itself."""


@dataclass(frozen=True, slots=True)
class DiskInUse:
    """A job that has a disk from its submission to its end."""

    job: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """A snapshot of a disk. It counts as `size_bytes`: the size of the disk when it was taken."""

    id: str
    name: str
    size_bytes: int
    created_at: datetime
    is_made: bool = False
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class DiskCopy:
    """A copy that is not made yet: of a disk, or of its snapshot `snapshot_id`, into a clone or a snapshot.

    `target` names in words what is made. While it is copied, an `is_still` disk is written to by no job. A clone
    that was deleted at `deleted_at` is looked at once more: it is kept where it is there by now, and else given up.
    """

    disk_id: str
    size_bytes: int
    target: str
    is_still: bool
    snapshot_id: str | None = None
    clone_id: str | None = None
    into_snapshot_id: str | None = None
    deleted_at: datetime | None = None

    @property
    def source_id(self) -> str:
        """The disk or snapshot that is copied."""
        return self.snapshot_id or self.disk_id

    @property
    def target_id(self) -> str:
        """The disk or snapshot that is made."""
        return self.clone_id or self.into_snapshot_id or ""

    def keeps_out(self, disk_id: str, *, writes: bool) -> bool:
        """Whether no job may have this disk meanwhile, or only read it."""
        is_source = disk_id == self.disk_id and self.snapshot_id is None
        return self.is_still and (disk_id == self.clone_id or (is_source and writes))


@dataclass(frozen=True, slots=True)
class DiskRecord:
    """A disk. `used_bytes` were on it at `measured_at`; `problem` says why the store could not make it yet.

    The store has given it `made_bytes`, if it has made it. `uses` has the job that writes, and the first that read.
    Snapshots are there by name.
    """

    id: str
    user_id: int
    name: str
    size_bytes: int
    state: DiskState
    created_at: datetime
    deleted_at: datetime | None = None
    made_bytes: int | None = None
    used_bytes: int | None = None
    measured_at: datetime | None = None
    problem: str | None = None
    uses: tuple[DiskInUse, ...] = ()
    snapshots: tuple[SnapshotRecord, ...] = ()

    @property
    def bytes_with_snapshots(self) -> int:
        """What the disk counts, with its snapshots."""
        return self.size_bytes + sum(snapshot.size_bytes for snapshot in self.snapshots)

    @property
    def is_given_up(self) -> bool:
        """Whether it could not be made and was deleted: it does not count any more."""
        return self.deleted_at is not None and self.made_bytes is None and self.problem is not None

    @property
    def is_full(self) -> bool:
        """Whether there was more on it than its size when that was measured."""
        return self.used_bytes is not None and self.used_bytes > self.size_bytes


class DiskStore(Protocol):
    """Where what is on disks is kept, by ids. All methods may be repeated; any may raise ClusterUnavailableError."""

    async def make(self, disk_id: str, size_bytes: int) -> None:
        """Make an empty disk, or give one that is there another size. Raises DiskRefusedError."""

    async def remove(self, disk_id: str) -> None:
        """Remove a disk with all that is on it, or a copy that was begun; one that is not there is no error."""

    async def copy(self, copy: DiskCopy) -> int | None:
        """Make a clone or a snapshot of what is on a disk; its bytes, None where it is not there yet.

        Raises DiskRefusedError.
        """

    async def remove_snapshot(self, snapshot_id: str) -> None:
        """Remove a snapshot, or what was begun of it; one that is not there is no error."""

    async def measure(self, disk_id: str, size_bytes: int) -> int | None:
        """How much is on a disk; None where that is not known. A store that can keeps it to its size from then on."""

    async def close(self) -> None:
        """Let go of connections."""

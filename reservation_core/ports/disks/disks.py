"""Disks: records of the database, and the store that has what is on them."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from reservation_core.domain.disks.disk_life import DiskState


class DiskRefusedError(Exception):
    """The store can't make a disk now: there is no room, say. The text tells people why, and what to do."""


@dataclass(frozen=True, slots=True)
class DiskInUse:
    """A job that has a disk from its submission to its end."""

    job: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class DiskRecord:
    """A disk. `used_bytes` were on it at `measured_at`; `problem` says why the store could not make it yet.

    The store has given it `made_bytes`, if it has made it. `uses` has the job that writes, and the first that read.
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
        """Remove a disk with all that is on it; one that is not there is no error."""

    async def used_bytes(self, disk_id: str) -> int | None:
        """How much is on a disk; None where that is not known."""

    async def close(self) -> None:
        """Let go of connections."""

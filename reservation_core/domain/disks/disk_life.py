"""The life of a disk: asked for, made, perhaps made larger, deleted, kept for a while, and removed."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

UNCOPIED: Final = "It was deleted before it was copied."
"""The problem of a deleted clone that nothing is on."""


class DiskState(StrEnum):
    """Where a disk stands."""

    CREATING = "creating"
    READY = "ready"
    RESIZING = "resizing"
    DELETED = "deleted"
    """It is kept for a while and can be restored."""
    REMOVING = "removing"


class DiskStep(StrEnum):
    """What the cluster has to do for a disk."""

    MAKE = "make"
    """Make it, or give it its size."""
    REMOVE = "remove"


class DiskBounds(NamedTuple):
    """The most bytes of one user's disks together, and of all users'. Deleted disks count while they are kept."""

    user_bytes: int
    all_bytes: int


def state_of(size_bytes: int, made_bytes: int | None, deleted_at: datetime | None, *, is_removing: bool) -> DiskState:
    """Where a disk stands; `made_bytes` is the size that the cluster has given it."""
    if deleted_at is not None:
        return DiskState.REMOVING if is_removing else DiskState.DELETED
    if made_bytes is None:
        return DiskState.CREATING
    return DiskState.READY if made_bytes == size_bytes else DiskState.RESIZING


def next_step(state: DiskState) -> DiskStep | None:
    """What the cluster has to do for a disk in this state; None for nothing."""
    match state:
        case DiskState.CREATING | DiskState.RESIZING:
            return DiskStep.MAKE
        case DiskState.REMOVING:
            return DiskStep.REMOVE
        case DiskState.READY | DiskState.DELETED:
            return None


def kept_until(deleted_at: datetime | None, kept: timedelta) -> datetime | None:
    """Until when a deleted disk can be restored."""
    return None if deleted_at is None else deleted_at + kept

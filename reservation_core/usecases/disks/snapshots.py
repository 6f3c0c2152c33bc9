"""Snapshots of disks, and clones: asked for here, made by the leader (see `copy_disks`)."""

from dataclasses import dataclass
from datetime import datetime

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.disks.disk_life import DiskBounds
from reservation_core.domain.disks.disk_uses import MOST_SNAPSHOTS
from reservation_core.domain.errors import DiskInUseError, LimitExceededError, NameTakenError, NotFoundError
from reservation_core.domain.event_kinds import PeopleEventKind
from reservation_core.domain.request_terms import size_words
from reservation_core.domain.similar_names import did_you_mean
from reservation_core.ports.disks.disks import DiskCopy, DiskRecord, SnapshotRecord
from reservation_core.ports.ids import IdSource
from reservation_core.ports.people.identities import Principal
from reservation_core.usecases.disks.disk_owners import SMALLER_SIZE, DiskOwner, find_owner, require_room
from reservation_core.usecases.disks.disks import append_event, require_disk


@dataclass(frozen=True, slots=True)
class CopyRules:
    """The bounds of disks. `is_still`: what is copied file by file must not be written to meanwhile."""

    bounds: DiskBounds
    is_still: bool


async def take_snapshot(
    uow: UnitOfWork,
    principal: Principal,
    disk: str,
    name: str | None,
    rules: CopyRules,
    ids: IdSource,
    now: datetime,
    *,
    user: str | None = None,
) -> SnapshotRecord:
    """Store a snapshot of a disk of the caller, or of `user`. Without a name it has that of the time.

    Raises ForbiddenError, NotFoundError, NameTakenError, LimitExceededError and DiskInUseError.
    """
    owner = await find_owner(uow, principal, user)
    await uow.disks.lock_users(owner.user_id)
    record = await require_disk(uow, owner, disk)
    _require_copyable(record, is_still=rules.is_still)
    if len(record.snapshots) >= MOST_SNAPSHOTS:
        raise LimitExceededError(
            f"The disk {disk} has {MOST_SNAPSHOTS} snapshots, and no more are allowed. Delete one:"
            f" `gpu-dev disk delete-snapshot {disk} {record.snapshots[0].name}{owner.option}`."
        )
    advice = "Delete snapshots or disks that are not needed"
    await require_room(
        uow, principal, owner, record.size_bytes, rules.bounds, advice=advice, is_disk=False
    )  # it counts as large as the disk
    snapshot = SnapshotRecord(ids.new_id("snap"), name or f"{now:%Y%m%d-%H%M%S}", record.size_bytes, now)
    if not await uow.snapshots.add(record.id, snapshot):
        raise NameTakenError(f"The disk {disk} has a snapshot {snapshot.name} already. Choose another name.")
    copy = DiskCopy(record.id, snapshot.size_bytes, "", rules.is_still, into_snapshot_id=snapshot.id)
    await uow.snapshots.add_copy(copy, now)
    await append_event(
        uow, principal, owner, PeopleEventKind.SNAPSHOT_TAKEN, record, now, snapshot=snapshot.id, named=snapshot.name
    )
    return snapshot


async def delete_snapshot(
    uow: UnitOfWork, principal: Principal, disk: str, name: str, now: datetime, *, user: str | None = None
) -> SnapshotRecord:
    """Delete a snapshot of a disk of the caller, or of `user`, for good.

    Raises ForbiddenError, NotFoundError, and DiskInUseError while it is cloned.
    """
    owner = await find_owner(uow, principal, user)
    record = await require_disk(uow, owner, disk)
    snapshot = _snapshot_of(record, owner, name)
    for copy in await uow.snapshots.copies_of([record.id]):
        if copy.snapshot_id == snapshot.id:
            raise DiskInUseError(f"The snapshot {name} is being copied into {copy.target}. Wait until that is ready.")
    await uow.snapshots.begin_removal(snapshot.id)
    await append_event(
        uow, principal, owner, PeopleEventKind.SNAPSHOT_DELETED, record, now, snapshot=snapshot.id, named=name
    )
    return snapshot


async def clone_disk(
    uow: UnitOfWork,
    principal: Principal,
    name: str,
    source: tuple[str, str | None],
    size_bytes: int | None,
    rules: CopyRules,
    ids: IdSource,
    now: datetime,
) -> DiskRecord:
    """Store a disk of the caller that begins with what is on another one, or was at its snapshot: `source` names both.

    Raises NotFoundError, NameTakenError, LimitExceededError and DiskInUseError.
    """
    owner = await find_owner(uow, principal, None)
    await uow.disks.lock_users(owner.user_id)
    disk, snapshot_name = source
    cloned = await require_disk(uow, owner, disk)
    snapshot = None if snapshot_name is None else _snapshot_of(cloned, owner, snapshot_name)
    if snapshot is None:
        _require_copyable(cloned, is_still=rules.is_still)
    elif not snapshot.is_made:
        raise LimitExceededError(f"The snapshot {snapshot.name} is not taken yet. Wait until it is ready.")
    least = cloned.size_bytes if snapshot is None else snapshot.size_bytes
    size = least if size_bytes is None else size_bytes
    if size < least:
        raise LimitExceededError(
            f"A clone of this has {size_words(least)} or more. Leave the size out, or name a larger one."
        )
    await require_room(uow, principal, owner, size, rules.bounds, advice=SMALLER_SIZE)
    record = await uow.disks.add(ids.new_id("disk"), owner.user_id, name, size, now)
    if record is None:
        raise NameTakenError(f"You have a disk {name} already. Choose another name.")
    snapshot_id = None if snapshot is None else snapshot.id
    copy = DiskCopy(cloned.id, size, "", rules.is_still, snapshot_id=snapshot_id, clone_id=record.id)
    await uow.snapshots.add_copy(copy, now)
    await append_event(
        uow, principal, owner, PeopleEventKind.DISK_CREATED, record, now, **{"from": snapshot_id or cloned.id}
    )
    return record


def _snapshot_of(record: DiskRecord, owner: DiskOwner, name: str) -> SnapshotRecord:
    for snapshot in record.snapshots:
        if snapshot.name == name:
            return snapshot
    meant = did_you_mean(name, [snapshot.name for snapshot in record.snapshots])
    raise NotFoundError(
        f"The disk {record.name} has no snapshot {name}.{meant}"
        f" `gpu-dev disk show {record.name}{owner.option}` lists all."
    )


def _require_copyable(record: DiskRecord, *, is_still: bool) -> None:
    """Require that there is something to copy, which no job changes where that matters."""
    if record.made_bytes is None:
        raise LimitExceededError(f"The disk {record.name} is not made yet. Wait until it is ready.")
    writers = [use.job for use in record.uses if not use.read_only]
    if is_still and writers:
        raise DiskInUseError(
            f"The job {writers[0]} can write to the disk {record.name} until it ends, and a disk is copied while no job"
            f" writes to it. Wait until the job has ended, or end it with `gpu-dev cancel {writers[0]}`."
        )
    if is_still and record.is_full:
        raise LimitExceededError(
            f"There are {size_words(record.used_bytes or 0)} on the disk {record.name}, which has"
            f" {size_words(record.size_bytes)}. Make it larger with `gpu-dev disk resize`, or remove files first."
        )

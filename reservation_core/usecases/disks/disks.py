"""Disks of a user: made, changed, handed over, deleted, restored, and given to jobs."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.disks.disk_life import UNCOPIED, DiskBounds, DiskState
from reservation_core.domain.disks.disk_uses import DiskUse
from reservation_core.domain.errors import (
    DiskInUseError,
    LimitExceededError,
    NameTakenError,
    NotFoundError,
    UnknownDiskError,
)
from reservation_core.domain.event_kinds import PeopleEventKind
from reservation_core.domain.policy.rules import RuleBreach
from reservation_core.domain.request_terms import size_words
from reservation_core.domain.similar_names import did_you_mean
from reservation_core.ports.disks.disks import DiskCopy, DiskRecord
from reservation_core.ports.ids import IdSource
from reservation_core.ports.people.identities import Principal
from reservation_core.ports.wakeups import Channel
from reservation_core.usecases.disks.disk_owners import (
    SMALLER_SIZE,
    DiskOwner,
    disk_names,
    find_heir,
    find_owner,
    require_enabled,
    require_room,
    unknown_disk,
)


@dataclass(frozen=True, slots=True)
class DiskChanges:
    """What changes of a disk; None stays. `owner`: the name of the user who gets it."""

    name: str | None = None
    size_bytes: int | None = None
    owner: str | None = None


async def create_disk(
    uow: UnitOfWork, principal: Principal, name: str, size_bytes: int, bounds: DiskBounds, ids: IdSource, now: datetime
) -> DiskRecord:
    """Store a disk of the caller, which the leader makes. Raises LimitExceededError and NameTakenError."""
    owner = await find_owner(uow, principal, None)
    await uow.disks.lock_users(owner.user_id)
    await require_room(uow, principal, owner, size_bytes, bounds, advice=SMALLER_SIZE)
    record = await uow.disks.add(ids.new_id("disk"), owner.user_id, name, size_bytes, now)
    if record is None:
        raise NameTakenError(f"You have a disk {name} already. Choose another name, or resize that disk.")
    await append_event(uow, principal, owner, PeopleEventKind.DISK_CREATED, record, now)
    return record


async def change_disk(
    uow: UnitOfWork,
    principal: Principal,
    name: str,
    changes: DiskChanges,
    bounds: DiskBounds,
    now: datetime,
    *,
    user: str | None = None,
) -> DiskRecord:
    """Rename, resize or hand over a disk of the caller, or of `user`.

    Raises ForbiddenError, NotFoundError, NameTakenError, LimitExceededError, DiskInUseError, UserDisabledError.
    """
    owner = await find_owner(uow, principal, user)
    heir = owner if changes.owner is None else await find_heir(uow, principal, owner, changes.owner)
    await uow.disks.lock_users(owner.user_id, heir.user_id)  # names are given one after the other
    if changes.owner is not None:
        await require_enabled(uow, heir)
    record = await require_disk(uow, owner, name)
    changed = replace(
        record,
        user_id=heir.user_id,
        name=changes.name or record.name,
        size_bytes=changes.size_bytes or record.size_bytes,
    )
    is_handed_over = changed.user_id != record.user_id
    if is_handed_over:
        _require_unused(record)
        await _require_uncloned(uow, record, owner)
    if is_handed_over or changed.size_bytes > record.size_bytes:
        advice = heir.makes_room if is_handed_over else SMALLER_SIZE
        await require_room(uow, principal, heir, changed.bytes_with_snapshots, bounds, but=record.id, advice=advice)
    least = record.size_bytes
    if changed.size_bytes < least and record.problem is not None and not await _is_copied(uow, record):
        least = record.made_bytes or 0  # a size that the cluster refused may be taken back
    if changed.size_bytes < least:
        raise LimitExceededError(
            f"The disk {name} has {size_words(least)}, and disks can't be made smaller. Create a"
            " smaller one, and copy what you need in a job that has both."
        )
    if (is_handed_over or changed.name != record.name) and await uow.disks.named(
        heir.user_id, changed.name
    ) is not None:
        raise NameTakenError(f"{heir.has} a disk {changed.name} already. Choose another name.")
    await uow.disks.change(changed, now)
    if is_handed_over:
        for subject in (owner, heir):
            await append_event(
                uow, principal, subject, PeopleEventKind.DISK_HANDED_OVER, changed, now, to=heir.name, was=record.name
            )
    else:
        await append_event(uow, principal, owner, PeopleEventKind.DISK_CHANGED, changed, now)
    if changed.size_bytes > record.size_bytes and record.state is DiskState.READY:
        changed = replace(changed, state=DiskState.RESIZING)
    return changed


async def delete_disk(
    uow: UnitOfWork, principal: Principal, name: str, now: datetime, *, user: str | None = None
) -> DiskRecord:
    """Delete a disk of the caller, or of `user`; it is kept for a while.

    Raises ForbiddenError, NotFoundError and DiskInUseError.
    """
    owner = await find_owner(uow, principal, user)
    record = await require_disk(uow, owner, name)
    _require_unused(record)
    for copy in await uow.snapshots.copies_of([record.id]):
        if copy.disk_id == record.id:
            raise DiskInUseError(
                f"The disk {name} is being copied into {copy.target}. Wait until that is ready, or delete it first."
            )
        if not copy.is_still and await uow.disks.was_used(record.id):
            # Its volume may have come with a job's pod, and have what that wrote: the leader looks once more.
            await uow.snapshots.note_begun(copy, now)
            record = replace(record, problem=None)
            continue
        # Nothing is on it: it is given up, and goes at once.
        record = replace(record, problem=record.problem or UNCOPIED)
        await uow.disks.note_failure(record.id, record.problem, now)
    deleted = replace(record, state=DiskState.DELETED, deleted_at=now)
    await uow.disks.change(deleted, now)
    await append_event(uow, principal, owner, PeopleEventKind.DISK_DELETED, record, now)
    return deleted


async def restore_disk(
    uow: UnitOfWork, principal: Principal, name: str, bounds: DiskBounds, now: datetime, *, user: str | None = None
) -> DiskRecord:
    """Restore the disk of that name that the caller, or `user`, deleted last. One that was given up counts again.

    Raises ForbiddenError, NotFoundError, NameTakenError and LimitExceededError.
    """
    owner = await find_owner(uow, principal, user)
    await uow.disks.lock_users(owner.user_id)
    await uow.disks.lock(owner.user_id, [name])
    record = await uow.disks.named(owner.user_id, name, deleted=True)
    if record is None or record.state is DiskState.REMOVING:
        meant = did_you_mean(name, await disk_names(uow, owner.user_id, deleted=True))
        raise NotFoundError(
            f"{owner.has} no deleted disk {name} that is still kept.{meant} `gpu-dev disk list --deleted{owner.option}`"
            " shows them."
        )
    if await uow.disks.named(owner.user_id, name) is not None:
        raise NameTakenError(
            f"{owner.has} another disk {name} now. Rename it first: `gpu-dev disk rename {name} NEW{owner.option}`."
        )
    if record.is_given_up:
        advice = "Create a smaller disk instead"
        await require_room(uow, principal, owner, record.size_bytes, bounds, but=record.id, advice=advice)
    await uow.disks.change(replace(record, deleted_at=None), now)
    await append_event(uow, principal, owner, PeopleEventKind.DISK_RESTORED, record, now)
    return await require_disk(uow, owner, name)


async def find_disks(uow: UnitOfWork, user_id: int, uses: Sequence[DiskUse], *, runs: bool) -> tuple[DiskUse, ...]:
    """The uses with the disks' ids. `runs`: the job has a command, which could fill a disk that is too full.

    Raises UnknownDiskError, DiskInUseError for a disk that another job writes to, and LimitExceededError.
    """
    names = {use.name for use in uses}
    found = await _locked(uow, user_id, names)
    missing = sorted(names - found.keys())
    if missing:
        meant = did_you_mean(missing[0], await disk_names(uow, user_id))
        raise UnknownDiskError(
            f"You have no disk {' or '.join(missing)}.{meant}"
            f" Create it with `gpu-dev disk create {missing[0]} --size 100Gi`.",
            [
                RuleBreach(UnknownDiskError.code, f"disks.{place}.name: you have no disk {use.name}")
                for place, use in enumerate(uses)
                if use.name in missing
            ],
        )
    copies = await uow.snapshots.copies_of([disk.id for disk in found.values()])
    for use in uses:
        disk = found[use.name]
        for copy in copies:
            if copy.keeps_out(disk.id, writes=not use.read_only):
                raise DiskInUseError(_copied_words(disk, copy))
        writers = [other.job for other in disk.uses if not other.read_only]
        if writers and not use.read_only:
            raise DiskInUseError(
                f"The job {writers[0]} has the disk {use.name} until it ends, and one job at a time can write to a"
                f" disk. Submit this job when that one has ended, or let it only read: `{use.name}:ro`."
            )
        if disk.made_bytes is None and disk.problem is not None:
            raise LimitExceededError(f"The disk {use.name} is not made yet. {disk.problem}")
        if runs and disk.is_full and not use.read_only:
            raise LimitExceededError(
                f"There are {size_words(disk.used_bytes or 0)} on the disk {use.name}, which has"
                f" {size_words(disk.size_bytes)}. Make it larger with `gpu-dev disk resize`, or remove files in a"
                f" session: `gpu-dev dev --disk {use.name}`."
            )
    return tuple(use._replace(disk_id=found[use.name].id) for use in uses)


async def _locked(uow: UnitOfWork, user_id: int, names: Collection[str]) -> dict[str, DiskRecord]:
    """A user's disks of these names, locked: one may have got its name while the others were locked."""
    locked = await uow.disks.lock(user_id, names)
    found = await uow.disks.all_named(user_id, names)
    while not {disk.id for disk in found.values()} <= locked:
        locked |= await uow.disks.lock(user_id, names)
        found = await uow.disks.all_named(user_id, names)
    return found


async def _is_copied(uow: UnitOfWork, record: DiskRecord) -> bool:
    """Whether a disk is made by a copy, and has nothing on it yet."""
    return any(copy.clone_id == record.id for copy in await uow.snapshots.copies_of([record.id]))


def _copied_words(disk: DiskRecord, copy: DiskCopy) -> str:
    wait = f"`gpu-dev disk show {disk.name}` says when it is ready."
    if copy.clone_id == disk.id:
        why = f" {disk.problem}" if disk.problem else ""
        return f"The disk {disk.name} is not copied yet.{why} {wait}"
    return (
        f"The disk {disk.name} is being copied into {copy.target}, and no job writes to it meanwhile. Submit this job"
        f" when that is ready, or let it only read: `--disk {disk.name}:ro`."
    )


async def require_disk(uow: UnitOfWork, owner: DiskOwner, name: str) -> DiskRecord:
    """A user's disk, locked. Raises NotFoundError."""
    await uow.disks.lock(owner.user_id, [name])
    record = await uow.disks.named(owner.user_id, name)
    if record is None:
        raise await unknown_disk(uow, owner, name)
    return record


def _require_unused(record: DiskRecord) -> None:
    if record.uses:
        job = record.uses[0].job
        raise DiskInUseError(
            f"The job {job} has the disk {record.name}. Wait until it has ended, or end it with `gpu-dev cancel {job}`."
        )


async def _require_uncloned(uow: UnitOfWork, record: DiskRecord, owner: DiskOwner) -> None:
    """Require that no clone is being made of a disk, or is this disk: it would have what a later owner writes."""
    for copy in await uow.snapshots.copies_of([record.id]):
        if copy.clone_id is not None:
            what = "a copy that is not made yet" if copy.clone_id == record.id else f"being copied into {copy.target}"
            raise DiskInUseError(
                f"The disk {record.name} is {what}, and is given to nobody meanwhile. Wait until"
                f" `gpu-dev disk list{owner.option}` says that the copy is ready, or delete the copy first."
            )


async def append_event(
    uow: UnitOfWork,
    principal: Principal,
    owner: DiskOwner,
    kind: PeopleEventKind,
    record: DiskRecord,
    now: datetime,
    **more: str,
) -> None:
    """Note what was done with a disk in the audit log."""
    data = {"user": owner.name, "disk": record.id, "name": record.name, "size": record.size_bytes, **more}
    await uow.events.append(actor=principal.user, kind=kind, at=now, subject=f"user:{owner.name}", data=data)
    uow.wake(Channel.EVENTS)

"""Disks of a user: made, changed, deleted, restored, and given to jobs."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.disks.disk_life import DiskBounds, DiskState
from reservation_core.domain.disks.disk_uses import MOST_DISKS, DiskUse
from reservation_core.domain.errors import (
    DiskInUseError,
    LimitExceededError,
    NameTakenError,
    NotFoundError,
    UnknownDiskError,
)
from reservation_core.domain.event_kinds import PeopleEventKind
from reservation_core.domain.request_terms import size_words
from reservation_core.ports.disks.disks import DiskRecord
from reservation_core.ports.ids import IdSource
from reservation_core.ports.people.identities import Principal
from reservation_core.ports.wakeups import Channel


async def create_disk(
    uow: UnitOfWork, principal: Principal, name: str, size_bytes: int, bounds: DiskBounds, ids: IdSource, now: datetime
) -> DiskRecord:
    """Store a disk of the caller, which the leader makes. Raises LimitExceededError and NameTakenError."""
    await _require_room(uow, principal, size_bytes, bounds)
    record = await uow.disks.add(ids.new_id("disk"), principal.user_id, name, size_bytes, now)
    if record is None:
        raise NameTakenError(f"You have a disk {name} already. Choose another name, or resize that disk.")
    await _append(uow, principal, PeopleEventKind.DISK_CREATED, record, now)
    return record


async def change_disk(
    uow: UnitOfWork,
    principal: Principal,
    name: str,
    new_name: str | None,
    size_bytes: int | None,
    bounds: DiskBounds,
    now: datetime,
) -> DiskRecord:
    """Rename or resize a disk of the caller. Raises NotFoundError, NameTakenError, LimitExceededError."""
    await uow.disks.totals(principal.user_id)  # names are given one after the other
    record = await _require(uow, principal, name)
    changed = replace(record, name=new_name or record.name, size_bytes=size_bytes or record.size_bytes)
    if changed.size_bytes > record.size_bytes:
        await _require_room(uow, principal, changed.size_bytes, bounds, but=record.id)
    # A size that the cluster refused may be taken back.
    least = record.size_bytes if record.problem is None else record.made_bytes or 0
    if changed.size_bytes < least:
        raise LimitExceededError(
            f"The disk {name} has {size_words(least)}, and disks can't be made smaller. Create a"
            " smaller one, and copy what you need in a job that has both."
        )
    if changed.name != record.name and await uow.disks.named(principal.user_id, changed.name) is not None:
        raise NameTakenError(f"You have a disk {changed.name} already. Choose another name.")
    await uow.disks.change(changed.id, changed.name, changed.size_bytes, now)
    await _append(uow, principal, PeopleEventKind.DISK_CHANGED, changed, now)
    if changed.size_bytes > record.size_bytes and record.state is DiskState.READY:
        changed = replace(changed, state=DiskState.RESIZING)
    return changed


async def delete_disk(uow: UnitOfWork, principal: Principal, name: str, now: datetime) -> DiskRecord:
    """Delete a disk of the caller; it is kept for a while. Raises NotFoundError and DiskInUseError."""
    record = await _require(uow, principal, name)
    if record.uses:
        job = record.uses[0].job
        raise DiskInUseError(
            f"The job {job} has the disk {name}. Wait until it has ended, or end it with `gpu-dev cancel {job}`."
        )
    await uow.disks.change(record.id, record.name, record.size_bytes, now, deleted=True)
    await _append(uow, principal, PeopleEventKind.DISK_DELETED, record, now)
    return replace(record, state=DiskState.DELETED, deleted_at=now)


async def restore_disk(uow: UnitOfWork, principal: Principal, name: str, now: datetime) -> DiskRecord:
    """Restore the disk of that name that the caller deleted last. Raises NotFoundError and NameTakenError."""
    await uow.disks.totals(principal.user_id)
    await uow.disks.lock(principal.user_id, [name])
    record = await uow.disks.named(principal.user_id, name, deleted=True)
    if record is None or record.state is DiskState.REMOVING:
        raise NotFoundError(
            f"You have no deleted disk {name} that is still kept. `gpu-dev disk list --deleted` shows them."
        )
    if await uow.disks.named(principal.user_id, name) is not None:
        raise NameTakenError(f"You have another disk {name} now. Rename it first: `gpu-dev disk rename {name} NEW`.")
    await uow.disks.change(record.id, record.name, record.size_bytes, now)
    await _append(uow, principal, PeopleEventKind.DISK_RESTORED, record, now)
    return await _require(uow, principal, name)


async def find_disks(uow: UnitOfWork, user_id: int, uses: Sequence[DiskUse], *, runs: bool) -> tuple[DiskUse, ...]:
    """The uses with the disks' ids. `runs`: the job has a command, which could fill a disk that is too full.

    Raises UnknownDiskError, DiskInUseError for a disk that another job writes to, and LimitExceededError.
    """
    names = {use.name for use in uses}
    found = await _locked(uow, user_id, names)
    missing = sorted(names - found.keys())
    if missing:
        raise UnknownDiskError(
            f"You have no disk {' or '.join(missing)}. Create it with `gpu-dev disk create {missing[0]} --size 100Gi`."
        )
    for use in uses:
        disk = found[use.name]
        writers = [other.job for other in disk.uses if not other.read_only]
        if writers and not use.read_only:
            raise DiskInUseError(
                f"The job {writers[0]} has the disk {use.name} until it ends, and one job at a time can write to a"
                f" disk. Submit this job when that one has ended, or let it only read: `--disk {use.name}:ro`."
            )
        if disk.made_bytes is None and disk.problem is not None:
            raise LimitExceededError(f"The disk {use.name} is not made yet. {disk.problem}")
        if runs and disk.is_full and not use.read_only:
            raise LimitExceededError(
                f"There are {size_words(disk.used_bytes or 0)} on the disk {use.name}, which has"
                f" {size_words(disk.size_bytes)}. Make it larger with `gpu-dev disk resize`, or remove files in a"
                f" session: `gpu-dev dev --disk {use.name}`."
            )
    return tuple(replace(use, disk_id=found[use.name].id) for use in uses)


async def _locked(uow: UnitOfWork, user_id: int, names: Collection[str]) -> dict[str, DiskRecord]:
    """A user's disks of these names, locked: one may have got its name while the others were locked."""
    locked = await uow.disks.lock(user_id, names)
    found = await uow.disks.all_named(user_id, names)
    while not {disk.id for disk in found.values()} <= locked:
        locked |= await uow.disks.lock(user_id, names)
        found = await uow.disks.all_named(user_id, names)
    return found


def no_such_disk(name: str) -> NotFoundError:
    """The refusal of a disk that the caller does not have."""
    return NotFoundError(f"You have no disk {name}. `gpu-dev disk list` shows yours.")


async def _require(uow: UnitOfWork, principal: Principal, name: str) -> DiskRecord:
    await uow.disks.lock(principal.user_id, [name])
    record = await uow.disks.named(principal.user_id, name)
    if record is None:
        raise no_such_disk(name)
    return record


async def _require_room(
    uow: UnitOfWork, principal: Principal, size_bytes: int, bounds: DiskBounds, but: str = ""
) -> None:
    disks, others = await uow.disks.totals(principal.user_id, but)
    if disks >= MOST_DISKS:
        raise LimitExceededError(f"You have {MOST_DISKS} disks, deleted ones that are still kept counted: no more fit.")
    if others + size_bytes > bounds.user_bytes:
        raise LimitExceededError(
            f"Your disks would have {size_words(others + size_bytes)} together, deleted ones that are still kept"
            f" counted; at most {size_words(bounds.user_bytes)} are allowed. Ask for a smaller size."
        )


async def _append(
    uow: UnitOfWork, principal: Principal, kind: PeopleEventKind, record: DiskRecord, now: datetime
) -> None:
    data = {"user": principal.user, "disk": record.id, "name": record.name, "size": record.size_bytes}
    await uow.events.append(actor=principal.user, kind=kind, at=now, subject=f"user:{principal.user}", data=data)
    uow.wake(Channel.EVENTS)

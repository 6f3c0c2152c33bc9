"""People's public SSH keys."""

from datetime import datetime

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.errors import NotFoundError
from reservation_core.domain.event_kinds import PeopleEventKind
from reservation_core.domain.sessions.public_keys import fingerprint_words, name_of, read_public_key
from reservation_core.ports.ids import IdSource
from reservation_core.ports.people.identities import Principal
from reservation_core.ports.sessions.ssh_keys import NewSshKey, SshKeyRecord
from reservation_core.usecases.jobs.visible_jobs import visible_user
from reservation_core.usecases.people.users import list_visible

MOST_KEYS = 100
"""The most keys of one user."""


async def add_key(
    uow: UnitOfWork, principal: Principal, public_key: str, name: str | None, ids: IdSource, now: datetime
) -> tuple[SshKeyRecord, bool]:
    """Add a key of the caller; returns it, and whether it is new: the same key twice is one key.

    Without a name its comment is its name. Raises PublicKeyRefusedError and LimitExceededError.
    """
    key = read_public_key(public_key)
    new = NewSshKey(ids.new_id("key"), principal.user_id, name or name_of(key), key.fingerprint, key.line)
    record, is_new = await uow.ssh_keys.add(new, most=MOST_KEYS, now=now)
    if is_new:
        await _append(uow, principal, PeopleEventKind.SSH_KEY_ADDED, record, now)
    return record, is_new


async def list_keys(
    uow: UnitOfWork, principal: Principal, *, user: str | None, after: str | None, limit: int
) -> list[SshKeyRecord]:
    """The caller's keys; for administrators those of all users, or of `user`."""
    return await list_visible(uow, principal, user, lambda owner: uow.ssh_keys.page(owner, after=after, limit=limit))


async def remove_key(uow: UnitOfWork, principal: Principal, key_id: str, now: datetime) -> SshKeyRecord:
    """Remove the caller's key, or as administrator anyone's. Raises NotFoundError."""
    record = await uow.ssh_keys.remove(key_id, visible_user(principal))
    if record is None:
        raise NotFoundError(f"You have no SSH key {key_id}. `gpu-dev keys list` shows yours.")
    await _append(uow, principal, PeopleEventKind.SSH_KEY_REMOVED, record, now)
    return record


async def _append(
    uow: UnitOfWork, principal: Principal, kind: PeopleEventKind, record: SshKeyRecord, now: datetime
) -> None:
    data = {"user": record.user, "fingerprint": fingerprint_words(record.fingerprint)}
    await uow.events.append(actor=principal.user, kind=kind, at=now, subject=record.id, data=data)

"""Public SSH keys of people in PostgreSQL."""

from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Row

from reservation_core.adapters.postgres.statement_runner import StatementRunner
from reservation_core.domain.errors import LimitExceededError
from reservation_core.ports.sessions.ssh_keys import KeyOwner, NewSshKey, SshKeyRecord

_USE_NOTED_EVERY: Final = timedelta(seconds=30)
_MOST_OWNERS: Final = 1000


class SshKeys(StatementRunner):
    """Public SSH keys of people. Several people may have the same key."""

    async def add(self, new: NewSshKey, *, most: int, now: datetime) -> tuple[SshKeyRecord, bool]:
        """Store a key; returns it, and whether it is new to this user.

        Raises LimitExceededError when the user already has `most` keys.
        """
        await self._run("lock_user_of_keys", user_id=new.user_id)
        values = {"user_id": new.user_id, "fingerprint": new.fingerprint}
        known = await self._first(_record, "ssh_key_by_fingerprint", **values)
        if known is not None:
            return known, False
        added = await self._first(
            _record, "add_ssh_key", **values, id=new.id, name=new.name, public_key=new.public_key, most=most, now=now
        )
        if added is None:
            raise LimitExceededError(f"You have {most} SSH keys already. Remove one that you don't need.")
        return added, True

    async def page(self, user_id: int | None, *, after: str | None, limit: int) -> list[SshKeyRecord]:
        """Keys after an id, by id; `user_id` None means all users."""
        values: dict[str, Any] = {"after": after or "", "limit": limit}
        if user_id is None:
            return [_record(row) for row in await self._run("ssh_keys_of_everybody", **values)]
        return [_record(row) for row in await self._run("ssh_keys_of_user", user_id=user_id, **values)]

    async def remove(self, key_id: str, user_id: int | None) -> SshKeyRecord | None:
        """Remove a key, and return it; None when this user (`user_id` None: any user) has no such key."""
        return await self._first(_record, "remove_ssh_key", id=key_id, user_id=user_id)

    async def owners(self, fingerprint: bytes) -> list[KeyOwner]:
        """The enabled users with this key."""
        rows = await self._run("owners_of_ssh_key", fingerprint=fingerprint, limit=_MOST_OWNERS)
        return [KeyOwner(row.id, row.user_id, row.user_name) for row in rows]

    async def note_use(self, key_id: str, now: datetime) -> None:
        """Note when a key was last used, at most every 30 s; unknown ids are ignored."""
        await self._run("touch_ssh_key", id=key_id, now=now, pause=_USE_NOTED_EVERY)


def _record(row: Row[Any]) -> SshKeyRecord:
    return SshKeyRecord(
        id=row.id,
        user=row.user_name,
        name=row.name,
        fingerprint=bytes(row.fingerprint),
        public_key=row.public_key,
        created_at=row.created_at,
        last_used_at=row.last_used_at,
    )

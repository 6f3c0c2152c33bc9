"""Secrets of users in PostgreSQL, sealed for their owner and their name."""

from collections.abc import Collection
from datetime import datetime
from typing import Any

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.sealing import PLAIN, Sealing, UnreadableError, is_sealed
from reservation_core.adapters.postgres.statement_runner import StatementRunner
from reservation_core.domain.errors import LimitExceededError, NoSecretsKeyError
from reservation_core.ports.people.user_secrets import SecretRecord, SecretUnreadableError


class UserSecrets(StatementRunner):
    """Users' secrets. A value is bound to its owner and its name: a row that was moved can't be opened."""

    def __init__(self, connection: AsyncConnection, sealing: Sealing = PLAIN) -> None:
        super().__init__(connection)
        self._sealing = sealing.secrets

    async def put(self, user_id: int, name: str, value: str, *, most: int, now: datetime) -> tuple[SecretRecord, bool]:
        """Store a secret or its new value; returns it, and whether it is new.

        Raises NoSecretsKeyError, and LimitExceededError when the user already has `most` secrets.
        """
        if not self._sealing.seals:
            raise NoSecretsKeyError(
                "This server has no key for secrets, so it stores none. An administrator can set"
                " GPU_DEV_SECRETS_KEY_FILE."
            )
        values = {
            "user_id": user_id,
            "name": name,
            "sealed": self._sealing.seal(value, _whose(user_id, name)),
            "now": now,
        }
        await self._run("lock_user_of_secrets", user_id=user_id)
        replaced = await self._first(_record, "replace_user_secret", **values)
        if replaced is not None:
            return replaced, False
        added = await self._first(_record, "add_user_secret", **values, most=most)
        if added is None:
            raise LimitExceededError(f"You have {most} secrets already. Delete one that you don't need.")
        return added, True

    async def page(self, user_id: int, *, after: str | None, limit: int) -> list[SecretRecord]:
        """A user's secrets after a name, by name."""
        rows = await self._run("user_secrets_of", user_id=user_id, after=after or "", limit=limit)
        return [_record(row) for row in rows]

    async def remove(self, user_id: int, name: str) -> SecretRecord | None:
        """Remove a secret, and return it; None when this user has no such secret."""
        return await self._first(_record, "remove_user_secret", user_id=user_id, name=name)

    async def missing(self, user_id: int, names: Collection[str]) -> list[str]:
        """Those of the names that are no secrets of the user."""
        rows = await self._run("user_secrets_named", user_id=user_id, names=list(names))
        return sorted(set(names) - {row.name for row in rows})

    async def values(self, user_id: int, names: Collection[str]) -> dict[str, str]:
        """The values of those of the names that are secrets of the user. Raises SecretUnreadableError."""
        rows = await self._run("sealed_user_secrets", user_id=user_id, names=list(names))
        return {row.name: self._open(row.sealed, user_id, row.name) for row in rows}

    async def reseal(self, after: tuple[int, str], limit: int) -> tuple[list[tuple[int, str]], int]:
        """Seal at most `limit` secrets after one with the first key that another one seals.

        Returns which they were, and how many of them can't be opened and stay as they are.
        """
        user_id, name = after
        found = await self._run(
            "user_secrets_of_former_keys", keys=self._sealing.former, user_id=user_id, name=name, limit=limit
        )
        rows, unread = found.all(), 0
        for row in rows:
            try:
                value = self._open(row.sealed, row.user_id, row.name)
            except SecretUnreadableError:
                unread += 1
                continue
            sealed = self._sealing.seal(value, _whose(row.user_id, row.name))
            await self._run("reseal_user_secret", user_id=row.user_id, name=row.name, sealed=sealed)
        return [(row.user_id, row.name) for row in rows], unread

    def _open(self, sealed: str, user_id: int, name: str) -> str:
        if not is_sealed(sealed):
            raise SecretUnreadableError(f"The secret {name} can't be read: it is not sealed.")
        try:
            return self._sealing.open(sealed, _whose(user_id, name))
        except UnreadableError as problem:
            raise SecretUnreadableError(f"The secret {name} can't be read: {problem}.") from problem


def _record(row: Row[Any]) -> SecretRecord:
    return SecretRecord(row.name, row.created_at, row.updated_at)


def _whose(user_id: int, name: str) -> str:
    return f"secret {name} of user {user_id}"

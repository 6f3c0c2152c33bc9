"""Users and tokens in PostgreSQL. Only digests of tokens are stored."""

from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Row
from sqlalchemy.exc import IntegrityError

from reservation_core.adapters.postgres.jobs.ledger_constraints import violates
from reservation_core.adapters.postgres.statement_runner import StatementRunner
from reservation_core.domain.errors import LimitExceededError, NameTakenError
from reservation_core.domain.people.token_budgets import Budget
from reservation_core.domain.people.token_scopes import EVERYTHING, TokenReach, in_order
from reservation_core.domain.statuses import Role, SignInMethod, TokenScope
from reservation_core.ports.people.identities import Principal, TokenRecord, UserRecord

_TOO_MANY = (
    "This user has 1000 tokens and browser sessions already, ended ones of the last ten minutes included. Revoke"
    " those that nobody needs (`gpu-dev tokens revoke`), or keep one and use it again."
)


class Identities(StatementRunner):
    async def principal(self, digest: bytes, now: datetime) -> Principal | None:
        """The user of a valid token; None for a disabled user."""
        return await self._first(_principal, "principal_of_digest", digest=digest, now=now)

    async def principal_of_token(self, token_id: str, now: datetime) -> Principal | None:
        """The same by the token's id."""
        return await self._first(_principal, "principal_of_token", id=token_id, now=now)

    async def create_user(self, name: str, role: Role, now: datetime) -> UserRecord:
        """Store a new user. Raises NameTakenError; the transaction stays usable."""
        row = (await self._run("create_user", name=name, role=role.value, now=now)).one_or_none()
        if row is None:
            raise NameTakenError(
                f"There is a user {name} already (disabled ones keep their name); choose another name."
            )
        return _user(row)

    async def user(self, name: str) -> UserRecord | None:
        """One user by name, even if disabled."""
        return await self._first(_user, "user_by_name", name=name)

    async def users(self, *, after: str | None, limit: int) -> list[UserRecord]:
        """Users after a name, in order of their names."""
        return [_user(row) for row in await self._run("users_by_name", after=after or "", limit=limit)]

    async def disable_user(self, name: str, now: datetime) -> UserRecord | None:
        """Disable a user with all tokens; None for an unknown user. Jobs and bookings are not changed here."""
        return await self._first(_user, "disable_user", name=name, now=now)

    async def enable_user(self, name: str) -> UserRecord | None:
        """Enable a user with all unrevoked tokens; None for an unknown user."""
        return await self._first(_user, "enable_user", name=name)

    async def unsettled(self) -> list[UserRecord]:
        """Disabled users whose jobs and bookings may not all be settled."""
        return [_user(row) for row in await self._run("unsettled_users")]

    async def mark_settled(self, user_id: int, now: datetime) -> None:
        """Mark a disabled user as settled: nothing waits, and nothing new can arrive."""
        await self._run("settle_user", id=user_id, now=now)

    async def create_token(
        self,
        token_id: str,
        user_id: int,
        name: str | None,
        digest: bytes,
        expires_at: datetime | None,
        now: datetime,
        *,
        method: SignInMethod | None = None,
        session: bool = False,
        session_from: str | None = None,
        made_with: str | None = None,
        scopes: frozenset[TokenScope] = EVERYTHING,
        budget: Budget | None = None,
    ) -> TokenRecord:
        """Store a token's digest (32 bytes); `method` is the sign-in method that it came from.

        It ends with the token that it was made with (`made_with`), or that its browser session was begun with
        (`session_from`). Raises LimitExceededError when a user would have more than 1000 such tokens.
        """
        values = {
            "id": token_id,
            "user_id": user_id,
            "name": name,
            "digest": digest,
            "expires_at": expires_at,
            "now": now,
            "method": None if method is None else method.value,
            "session": session,
            "session_from": session_from,
            "made_with": made_with,
            "scopes": in_order(scopes),
            "budget_id": None if budget is None else token_id,
        }
        try:
            result = await self._run("create_token", **values)
        except IntegrityError as error:
            if violates(error, "tokens_are_few"):
                raise LimitExceededError(_TOO_MANY) from error
            raise
        record = _token(result.one())
        if budget is None:
            return record
        charged = {"id": token_id, "gpu_us": budget.gpu_us, "until": budget.until}
        await self._run("add_budget", **charged)
        return replace(record, budget=budget)

    async def token_reach(self, token_id: str, now: datetime) -> TokenReach | None:
        """The scopes, expiry and budget of a token; None for an invalid one."""
        row = (await self._run("token_reach", id=token_id, now=now)).one_or_none()
        return None if row is None else TokenReach(_scopes(row), row.expires_at, row.generation, _budget(row))

    async def forget_tokens(self, user_id: int, before: datetime) -> None:
        """Delete some of a user's tokens that ended before a time and have no dependent tokens; the audit log stays."""
        await self._run("forget_tokens", user_id=user_id, before=before)

    async def tokens(self, user_id: int | None, *, after: str | None, limit: int) -> list[TokenRecord]:
        """Tokens after an id, by id, including revoked ones; `user_id` None means all users."""
        values: dict[str, Any] = {"after": after or "", "limit": limit}
        if user_id is None:
            return [_token(row) for row in await self._run("tokens_of_everybody", **values)]
        return [_token(row) for row in await self._run("tokens_of_user", user_id=user_id, **values)]

    async def revoke_token(self, token_id: str, user_id: int | None, now: datetime) -> TokenRecord | None:
        """Revoke a token with all tokens made with it; idempotent.

        None when this user (`user_id` None: any user) has no such token.
        """
        return await self._first(_token, "revoke_token", id=token_id, user_id=user_id, now=now)

    async def renew_token(self, token_id: str, shown: bytes, digest: bytes, now: datetime) -> TokenRecord | None:
        """Replace a token's digest `shown` (32 bytes).

        None when the token is invalid or has another digest, or when another token has the new digest.
        """
        return await self._first(_token, "renew_token", id=token_id, shown=shown, digest=digest, now=now)

    async def revoke_tokens(self, user_id: int, kept: str, now: datetime) -> list[str]:
        """Revoke all of a user's valid tokens except `kept` and those that it was made with; returns their ids."""
        return list((await self._run("revoke_tokens", user_id=user_id, kept=kept, now=now)).scalars())

    async def touch_tokens(self, used: dict[str, datetime]) -> None:
        """Write when tokens (by id) were last used. Times never go back; unknown ids are ignored."""
        if used:
            await self._run("touch_tokens", ids=list(used), times=list(used.values()))


def _principal(row: Row[Any]) -> Principal:
    return Principal(
        user_id=row.user_id,
        user=row.user_name,
        role=Role(row.role),
        token_id=row.token_id,
        expires_at=row.expires_at,
        method=None if row.method is None else SignInMethod(row.method),
        session=row.session,
        session_from=row.session_from,
        scopes=_scopes(row),
        budget_id=row.budget_id,
    )


def _user(row: Row[Any]) -> UserRecord:
    return UserRecord(row.id, row.name, Role(row.role), row.created_at, row.disabled_at)


def _token(row: Row[Any]) -> TokenRecord:
    return TokenRecord(
        id=row.id,
        user_id=row.user_id,
        user=row.user_name,
        name=row.name,
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
        last_used_at=row.last_used_at,
        scopes=_scopes(row),
        made_with=row.made_with,
        session=row.session,
        budget=_budget(row),
    )


def _budget(row: Row[Any]) -> Budget | None:
    return None if row.budget is None else Budget(row.budget, row.gpu_us, row.until, row.charged_us)


def _scopes(row: Row[Any]) -> frozenset[TokenScope]:
    return frozenset(map(TokenScope, row.scopes))

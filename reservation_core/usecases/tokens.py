"""Tokens: the bearer credentials of users. A secret is shown once, at creation; only its digest is stored."""

from datetime import datetime, timedelta

from reservation_core.domain.errors import ForbiddenError, NotFoundError, UserDisabledError
from reservation_core.ports.identities import Principal, TokenRecord
from reservation_core.ports.ids import IdSource
from reservation_core.ports.transactions import UnitOfWork


async def create(
    uow: UnitOfWork,
    principal: Principal,
    *,
    name: str | None,
    user: str | None,
    expires_in: timedelta | None,
    ids: IdSource,
    now: datetime,
) -> tuple[TokenRecord, str]:
    """Make a token for the caller, or (administrators) for `user`; returns it and its secret.

    Raises ForbiddenError, NotFoundError for an unknown user, UserDisabledError.
    """
    expires_at = None if expires_in is None else now + expires_in
    user_id, method = principal.user_id, principal.method
    if user is not None and user != principal.user:
        if not principal.is_admin:
            # The same words whether that user exists or not.
            raise ForbiddenError("Only administrators make tokens for others. Leave `user` out to make your own.")
        record = await uow.identities.user(user)
        if record is None:
            raise NotFoundError(f"There is no user {user!r}. Create it first with POST /v1/users.")
        if record.disabled_at is not None:
            raise UserDisabledError(f"User {user!r} is disabled, so a token would not work. Make it for another user.")
        user_id, method = record.id, None
    elif principal.method is not None and _outlasts(expires_at, principal.expires_at):
        # Who vouched for them is asked again when it expires; a token made with it must not go past that.
        raise ForbiddenError(
            "You have signed in for a while, and can't make a token of yours that lasts longer. Sign in again when it"
            " expires, give a shorter `expires_in`, or ask an administrator for a token."
        )
    secret = ids.new_secret()
    token = await uow.identities.create_token(
        ids.new_id("tok"), user_id, name, ids.digest(secret), expires_at, now, method=method
    )
    await uow.events.append(
        actor=principal.user, kind="token_created", at=now, subject=token.id, data={"user": token.user}
    )
    return token, secret


def _outlasts(one: datetime | None, other: datetime | None) -> bool:
    return other is not None and (one is None or one > other)


async def page(
    uow: UnitOfWork, principal: Principal, *, user: str | None, after: str | None, limit: int
) -> list[TokenRecord]:
    """The caller's tokens; for administrators everybody's, or those of `user`."""
    if not principal.is_admin:
        if user not in (None, principal.user):
            return []
        return await uow.identities.tokens(principal.user_id, after=after, limit=limit)
    if user is None:
        return await uow.identities.tokens(None, after=after, limit=limit)
    record = await uow.identities.user(user)
    return [] if record is None else await uow.identities.tokens(record.id, after=after, limit=limit)


async def revoke(uow: UnitOfWork, principal: Principal, token_id: str, now: datetime) -> TokenRecord:
    """End a token: the caller's own, or for administrators anybody's. Raises NotFoundError."""
    owner = None if principal.is_admin else principal.user_id
    token = await uow.identities.revoke_token(token_id, owner, now)
    if token is None:
        raise NotFoundError(f"You have no token {token_id!r}. `gpu-dev tokens list` shows those you have.")
    await uow.events.append(
        actor=principal.user, kind="token_revoked", at=now, subject=token.id, data={"user": token.user}
    )
    return token

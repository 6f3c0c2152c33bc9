"""Tokens: the bearer credentials of users. A secret is shown once, at creation; only its digest is stored."""

from datetime import datetime, timedelta

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.contracts.people import TokenBudget
from reservation_core.domain.errors import (
    ForbiddenError,
    NameTakenError,
    NotFoundError,
    UnknownCallerError,
    UserDisabledError,
)
from reservation_core.domain.event_kinds import PeopleEventKind
from reservation_core.domain.people.token_budgets import passed_on
from reservation_core.domain.people.token_scopes import TokenReach
from reservation_core.domain.statuses import TokenScope
from reservation_core.ports.ids import IdSource
from reservation_core.ports.people.identities import Principal, TokenRecord
from reservation_core.usecases.people.users import list_visible, unknown_user, user_to_add

KEPT_WHEN_OVER = timedelta(days=7)
"""How long ended tokens are still listed."""
_MOST_RECORDED = 200


async def require_working(uow: UnitOfWork, token_id: str, now: datetime) -> TokenReach:
    """The reach of a valid token or session. Raises ForbiddenError for an ended one.

    Servers cache callers for a moment, so lasting credentials require a check in the database.
    """
    reach = await uow.identities.token_reach(token_id, now)
    if reach is None:
        raise ForbiddenError("The token that you use has just ended. Sign in again.")
    return reach


async def maker_of(uow: UnitOfWork, principal: Principal, now: datetime) -> tuple[str, TokenReach]:
    """The token on which the caller's new credentials depend, and its reach.

    For a browser session it is the token that the session was begun with. Raises ForbiddenError when either has ended.
    """
    maker = principal.session_from or principal.token_id
    await require_working(uow, principal.token_id, now)
    return maker, await require_working(uow, maker, now)


async def create(
    uow: UnitOfWork,
    principal: Principal,
    *,
    name: str | None,
    user: str | None,
    expires_in: timedelta | None,
    scopes: frozenset[TokenScope] | None,
    budget: TokenBudget | None,
    longest: timedelta | None,
    ids: IdSource,
    now: datetime,
) -> tuple[TokenRecord, str]:
    """Make a token for the caller, or as administrator for `user`; returns it and its secret.

    It reaches no farther than the token that it is made with (in a browser session, the session's token), ends with it,
    and lives for `longest` at most. Requests are charged to its `budget` and to those of its predecessors. Raises
    ForbiddenError, NotFoundError for an unknown user, UserDisabledError, LimitExceededError.
    """
    user_id, method = principal.user_id, principal.method
    if user is not None and user != principal.user:
        if not principal.is_admin:
            # The same error whether the user exists or not.
            raise ForbiddenError(
                "Only administrators may create tokens for other users. Leave `user` out to create your own."
            )
        record = await uow.identities.user(user)
        if record is None:
            raise await user_to_add(uow, user)
        if record.disabled_at is not None:
            raise UserDisabledError(
                f"User {user!r} is disabled, so a token would not work. Create one for another user."
            )
        user_id, method = record.id, None
    maker, reach = await maker_of(uow, principal, now)
    maker_budget = reach.budget
    reach = reach.passed_on(scopes, expires_in, longest, now)
    token_id, secret = ids.new_id("tok"), ids.new_secret()
    await uow.identities.forget_tokens(user_id, now - KEPT_WHEN_OVER)
    own = None if budget is None else passed_on(maker_budget, token_id, budget.gpu_hours, budget.until, now)
    token = await uow.identities.create_token(
        token_id,
        user_id,
        name,
        ids.digest(secret),
        reach.expires_at,
        now,
        method=method,
        made_with=maker,
        scopes=reach.scopes,
        budget=own,
    )
    data = {"user": token.user} | ({} if budget is None else {"budget": budget.model_dump(mode="json")})
    await uow.events.append(
        actor=principal.user, kind=PeopleEventKind.TOKEN_CREATED, at=now, subject=token.id, data=data
    )
    return token, secret


async def page(
    uow: UnitOfWork, principal: Principal, *, user: str | None, after: str | None, limit: int
) -> list[TokenRecord]:
    """The caller's tokens; for administrators those of all users, or of `user`."""
    return await list_visible(
        uow, principal, user, lambda owner: uow.identities.tokens(owner, after=after, limit=limit)
    )


async def revoke(uow: UnitOfWork, principal: Principal, token_id: str, now: datetime) -> TokenRecord:
    """Revoke the caller's token, or as administrator anyone's. Raises NotFoundError."""
    owner = None if principal.is_admin else principal.user_id
    token = await uow.identities.revoke_token(token_id, owner, now)
    if token is None:
        raise NotFoundError(f"You have no token {token_id!r}. `gpu-dev tokens list` shows yours.")
    await uow.events.append(
        actor=principal.user, kind=PeopleEventKind.TOKEN_REVOKED, at=now, subject=token.id, data={"user": token.user}
    )
    return token


async def renew(uow: UnitOfWork, principal: Principal, shown: bytes, digest: bytes, now: datetime) -> TokenRecord:
    """Replace the secret of the calling token. `shown` is the digest of the secret that the request was made with.

    Raises UnknownCallerError for a replaced secret or an ended token; NameTakenError.
    """
    token = await uow.identities.renew_token(principal.token_id, shown, digest, now)
    if token is None:
        if await uow.identities.principal(shown, now) is None:
            raise UnknownCallerError
        raise NameTakenError("This secret is not accepted. Make another one, such as 32 random bytes.")
    await uow.events.append(
        actor=principal.user, kind=PeopleEventKind.TOKEN_RENEWED, at=now, subject=token.id, data={"user": token.user}
    )
    return token


async def revoke_all(uow: UnitOfWork, principal: Principal, user: str | None, now: datetime) -> tuple[str, int]:
    """Revoke the tokens and the calendar address of the caller, or as administrator of `user`.

    The calling token and its predecessors stay. Returns the user's name and the number of tokens. Raises
    ForbiddenError, NotFoundError for an unknown user.
    """
    user_id, name = principal.user_id, principal.user
    if user is not None and user != principal.user:
        if not principal.is_admin:
            raise ForbiddenError(
                "Only administrators may revoke other users' tokens. Leave `user` out to revoke your own."
            )
        record = await uow.identities.user(user)
        if record is None:
            raise await unknown_user(uow, principal, user)
        user_id, name = record.id, record.name
    revoked = await uow.identities.revoke_tokens(user_id, principal.token_id, now)
    if revoked:
        await uow.events.append(
            actor=principal.user,
            kind=PeopleEventKind.TOKENS_REVOKED,
            at=now,
            subject=f"user:{name}",
            data={"user": name, "tokens": len(revoked), "ids": sorted(revoked)[:_MOST_RECORDED]},
        )
    if await uow.calendar_feeds.remove(user_id):
        await uow.events.append(
            actor=principal.user, kind=PeopleEventKind.CALENDAR_FEED_REMOVED, at=now, subject=f"user:{name}"
        )
    return name, len(revoked)

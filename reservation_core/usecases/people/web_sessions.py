"""Browser sessions: tokens that are never shown, made from a token that their owner showed."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.errors import ForbiddenError
from reservation_core.domain.event_kinds import PeopleEventKind
from reservation_core.domain.statuses import Role, TokenScope
from reservation_core.ports.ids import IdSource
from reservation_core.ports.people.identities import Principal, TokenRecord
from reservation_core.usecases.people.sign_in import SESSION_NAME
from reservation_core.usecases.people.tokens import KEPT_WHEN_OVER


@dataclass(frozen=True, slots=True)
class WebSession:
    """A session and its secret, which the browser keeps."""

    token: TokenRecord
    expires_at: datetime
    secret: str = field(repr=False)


async def open_session(
    uow: UnitOfWork, shown: Principal, *, lasts: timedelta, ids: IdSource, now: datetime
) -> WebSession:
    """Begin a session for the owner of a shown token; it ends after `lasts`, or earlier with the token.

    It has the token's scopes. Raises ForbiddenError for a service's token, and for a token without the scope `read`.
    """
    if shown.role is Role.SERVICE:
        raise ForbiddenError("This is a service's token, and the pages are for people. Sign in with a token of yours.")
    if TokenScope.READ not in shown.scopes:
        raise ForbiddenError("This token does not have the scope read, so the pages would show nothing. Use another.")
    secret = ids.new_secret()
    expires_at = now + lasts if shown.expires_at is None else min(now + lasts, shown.expires_at)
    await uow.identities.forget_tokens(shown.user_id, now - KEPT_WHEN_OVER)
    token = await uow.identities.create_token(
        ids.new_id("tok"),
        shown.user_id,
        SESSION_NAME,
        ids.digest(secret),
        expires_at,
        now,
        method=shown.method,
        session=True,
        session_from=shown.token_id,
        scopes=shown.scopes,
    )
    await uow.events.append(
        actor=shown.user, kind=PeopleEventKind.SESSION_BEGUN, at=now, subject=token.id, data={"user": shown.user}
    )
    return WebSession(token, expires_at, secret)

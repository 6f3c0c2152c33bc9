"""Authentication: bearer tokens, looked up by digest and cached for a moment.

A verified token is remembered for `token_cache_s` seconds, so a token that another process revokes works that much
longer; a token that this process revokes stops at once. Expiry needs no lookup and is checked on every call.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime

import structlog

from api_service.problems import ProblemError
from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.domain.errors import UnknownCallerError
from reservation_core.domain.statuses import Role
from reservation_core.ports.clock import Clock
from reservation_core.ports.ids import IdSource
from reservation_core.ports.people.identities import Principal

_MAX_REMEMBERED = 10_000
_MAX_SECRET = 512
_log = structlog.get_logger(__name__)


class Authenticator:
    """Turns `Authorization` headers into principals."""

    def __init__(self, uow: UnitOfWorkFactory, ids: IdSource, clock: Clock, ttl_s: float) -> None:
        self._uow = uow
        self._ids = ids
        self._clock = clock
        self._ttl_s = ttl_s
        self._known: dict[bytes, tuple[Principal, float]] = {}
        self._looking: dict[bytes, asyncio.Task[Principal | None]] = {}
        # Counts revocations here: a lookup that began before one may have read the old state and is not remembered.
        self._revocations = 0
        self._used: dict[str, datetime] = {}

    async def principal(self, header: str | None, *, session: bool = False) -> Principal:
        """Return the caller of a request. Raises ProblemError (401) without a valid credential.

        `session`: the header was made of a browser's cookie. A session is never a bearer token.
        """
        digest = self.digest(header)
        now = self._clock.now()
        principal = self._fresh(digest) or await self._look_up_once(digest, now)
        if principal is None or _is_over(principal, now) or principal.session is not session:
            raise _unauthenticated("invalid_token", UnknownCallerError().detail)
        self._used[principal.token_id] = now
        return principal

    def digest(self, header: str | None) -> bytes:
        """The digest of the secret in a header. Raises ProblemError (401) without one."""
        return self._ids.digest(_secret_in(header))

    def remembered(self, header: str, *, session: bool = False) -> Principal | None:
        """Return the caller if no lookup is needed; None also for an invalid credential."""
        secret = _bearer(header)
        principal = None if secret is None else self._fresh(self._ids.digest(secret))
        if principal is None:
            return None
        now = self._clock.now()
        if _is_over(principal, now) or principal.session is not session:
            return None
        self._used[principal.token_id] = now
        return principal

    def was_right(self, header: str) -> bool:
        """Whether the credential was valid at its last lookup, as far as that is remembered."""
        secret = _bearer(header)
        return secret is not None and self._ids.digest(secret) in self._known

    def forget_user(self, name: str) -> None:
        """Forget a user's tokens after this process disabled the user or revoked some of them."""
        self._forget(lambda principal: principal.user == name)

    def forget_revoked(self, by: Principal, user: str) -> None:
        """Forget the tokens of `user`, and those made with them, after a revocation by `by`.

        An administrator's tokens may have made tokens for any user.
        """
        if by.role is Role.ADMIN:
            self._forget(lambda _: True)
        else:
            self.forget_user(user)

    async def write_last_used(self) -> None:
        """Store when tokens were last used; what can't be stored now is kept for the next call."""
        used, self._used = self._used, {}
        if not used:
            return
        try:
            async with self._uow() as uow:
                await uow.identities.touch_tokens(used)
        except Exception:
            self._used = used | self._used
            raise

    def _forget(self, is_revoked: Callable[[Principal], bool]) -> None:
        self._revocations += 1
        self._looking.clear()
        self._known = {digest: known for digest, known in self._known.items() if not is_revoked(known[0])}

    def _fresh(self, digest: bytes) -> Principal | None:
        known = self._known.get(digest)
        return known[0] if known is not None and asyncio.get_running_loop().time() < known[1] else None

    async def _look_up_once(self, digest: bytes, now: datetime) -> Principal | None:
        """Callers with the same token at the same time share one lookup."""
        looking = self._looking.get(digest)
        if looking is None:
            looking = asyncio.create_task(self._look_up(digest, now))
            self._looking[digest] = looking
            looking.add_done_callback(lambda task: self._end_look_up(digest, task))
        # Shielded: a caller that leaves must not fail the others.
        return await asyncio.shield(looking)

    def _end_look_up(self, digest: bytes, task: "asyncio.Task[Principal | None]") -> None:
        if self._looking.get(digest) is task:
            del self._looking[digest]
        if not task.cancelled() and task.exception() is not None:
            _log.warning("token_lookup_failed", error=type(task.exception()).__name__)

    async def _look_up(self, digest: bytes, now: datetime) -> Principal | None:
        revocations = self._revocations
        async with self._uow() as uow:
            principal = await uow.identities.principal(digest, now)
        if principal is None:
            self._known.pop(digest, None)
        elif revocations == self._revocations:
            if len(self._known) >= _MAX_REMEMBERED:
                self._known.clear()
            self._known[digest] = (principal, asyncio.get_running_loop().time() + self._ttl_s)
        return principal


def _secret_in(header: str | None) -> str:
    if header is None:
        raise _unauthenticated(None, "Send a token: `Authorization: Bearer <token>`. `gpu-dev login` stores one.")
    secret = _bearer(header)
    if secret is None:
        raise _unauthenticated("invalid_request", "The Authorization header must read `Bearer <token>`.")
    return secret


def _bearer(header: str) -> str | None:
    """The secret of a well-formed header."""
    scheme, _, secret = header.partition(" ")
    secret = secret.strip()
    return secret if scheme.lower() == "bearer" and 0 < len(secret) <= _MAX_SECRET and secret.isascii() else None


def _is_over(principal: Principal, now: datetime) -> bool:
    return principal.expires_at is not None and principal.expires_at <= now


def unauthenticated(detail: str) -> ProblemError:
    """The refusal (401) of a credential that is not valid."""
    return _unauthenticated("invalid_token", detail)


def _unauthenticated(error: str | None, detail: str) -> ProblemError:
    challenge = 'Bearer realm="gpu-dev"' + ("" if error is None else f', error="{error}"')
    return ProblemError(401, "unauthenticated", detail, headers={"WWW-Authenticate": challenge})

"""Users, their tokens, and who calls."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from reservation_core.domain.model import Role
from reservation_core.domain.people.sign_in import SignInMethod
from reservation_core.domain.people.token_budgets import Budget
from reservation_core.domain.people.token_scopes import EVERYTHING, TokenReach, TokenScope


@dataclass(frozen=True, slots=True)
class Principal:
    """Who calls, from a verified credential."""

    user_id: int
    user: str
    role: Role
    token_id: str
    expires_at: datetime | None
    method: SignInMethod | None = None  # what vouched for them at a sign-in
    session: bool = False  # of a browser: no bearer token
    session_from: str | None = None  # with which token it was begun; None where at a sign-in elsewhere
    scopes: frozenset[TokenScope] = EVERYTHING
    budget_id: str | None = None  # of the token whose budget it is held to: its own, or the nearest before it

    @property
    def is_admin(self) -> bool:
        """Whether everything is theirs to see and change: an administrator, with a token that is good for that."""
        return self.role is Role.ADMIN and TokenScope.ADMIN in self.scopes


@dataclass(frozen=True, slots=True)
class UserRecord:
    """A user."""

    id: int
    name: str
    role: Role
    created_at: datetime
    disabled_at: datetime | None


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A token, without its secret."""

    id: str
    user_id: int
    user: str
    name: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    scopes: frozenset[TokenScope]
    made_with: str | None
    session: bool
    budget: Budget | None  # its own, or the nearest before it


class Identities(Protocol):
    """Users and tokens."""

    async def principal(self, digest: bytes, now: datetime) -> Principal | None:
        """Whose token this is, if it is valid now and its user is not disabled."""
        ...

    async def create_user(self, name: str, role: Role, now: datetime) -> UserRecord:
        """Raises NameTakenError."""
        ...

    async def user(self, name: str) -> UserRecord | None:
        """By name."""
        ...

    async def users(self, *, after: str | None, limit: int) -> list[UserRecord]:
        """By name."""
        ...

    async def disable_user(self, name: str, now: datetime) -> UserRecord | None:
        """Their tokens stop working. What becomes of what they have is another matter."""
        ...

    async def enable_user(self, name: str) -> UserRecord | None:
        """Those of their tokens that were not revoked work again."""
        ...

    async def unsettled(self) -> list[UserRecord]:
        """Disabled users of whom something may still come in."""
        ...

    async def note_settled(self, user_id: int, now: datetime) -> None:
        """Nothing of a disabled user waits any more, and nothing can come in."""
        ...

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
        """Store a token's digest; `method` says what vouched for whoever got it at a sign-in. It ends with the token
        that it was made with, or that a browser's session was begun with (`session_from`). `budget`: its own.

        Raises LimitExceededError where a user would have more than 1000 that end with others.
        """
        ...

    async def token_reach(self, token_id: str, now: datetime) -> TokenReach | None:
        """How far a token reaches; None for one that does not work any more."""
        ...

    async def forget_tokens(self, user_id: int, before: datetime) -> None:
        """Delete some of a user's tokens that were over before that, once all that were made with them are gone."""
        ...

    async def tokens(self, user_id: int | None, *, after: str | None, limit: int) -> list[TokenRecord]:
        """By id; None means everybody's."""
        ...

    async def revoke_token(self, token_id: str, user_id: int | None, now: datetime) -> TokenRecord | None:
        """With all that were made with it. None when there is no such token for this user (None: for anybody)."""
        ...

    async def renew_token(self, token_id: str, shown: bytes, digest: bytes, now: datetime) -> TokenRecord | None:
        """Replace its digest `shown`; None when it does not work any more, has another digest already, or another token
        has the new one."""
        ...

    async def revoke_tokens(self, user_id: int, kept: str, now: datetime) -> list[str]:
        """All of a user's that work but for one, and those that it was made with; returns their ids."""
        ...

    async def touch_tokens(self, used: dict[str, datetime]) -> None:
        """Write when tokens were last used, many at once."""
        ...

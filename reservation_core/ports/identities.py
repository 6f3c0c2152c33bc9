"""Users, their tokens, and who calls."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from reservation_core.domain.model import Role
from reservation_core.domain.sign_in import SignInMethod


@dataclass(frozen=True, slots=True)
class Principal:
    """Who calls, from a verified credential."""

    user_id: int
    user: str
    role: Role
    token_id: str
    expires_at: datetime | None
    method: SignInMethod | None = None  # what vouched for them at a sign-in
    session_from: str | None = None  # of which token this is a browser's session

    @property
    def is_admin(self) -> bool:
        """Whether everything is theirs to see and change."""
        return self.role is Role.ADMIN


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
        session_from: str | None = None,
    ) -> TokenRecord:
        """Store a token's digest; `method` says what vouched for whoever got it at a sign-in, `session_from` of which
        token it is a browser's session, and with which it ends."""
        ...

    async def forget_sign_ins(self, user_id: int, before: datetime) -> None:
        """Delete a user's tokens of sign-ins and browsers' sessions that expired before that."""
        ...

    async def tokens(self, user_id: int | None, *, after: str | None, limit: int) -> list[TokenRecord]:
        """By id; None means everybody's."""
        ...

    async def revoke_token(self, token_id: str, user_id: int | None, now: datetime) -> TokenRecord | None:
        """None when there is no such token for this user (None: for anybody)."""
        ...

    async def touch_tokens(self, used: dict[str, datetime]) -> None:
        """Write when tokens were last used, many at once."""
        ...

"""Users, their tokens, and callers."""

from dataclasses import dataclass
from datetime import datetime

from reservation_core.domain.people.token_budgets import Budget
from reservation_core.domain.people.token_scopes import EVERYTHING
from reservation_core.domain.statuses import Role, SignInMethod, TokenScope


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller, by a verified credential."""

    user_id: int
    user: str
    role: Role
    token_id: str
    expires_at: datetime | None
    method: SignInMethod | None = None  # of a sign-in
    session: bool = False  # of a browser: no bearer token
    session_from: str | None = None  # the token that began it; None after a sign-in at an issuer
    scopes: frozenset[TokenScope] = EVERYTHING
    budget_id: str | None = None  # the token whose budget applies: its own, or the nearest before it

    @property
    def is_admin(self) -> bool:
        """Whether the caller is an administrator, with a token for that."""
        return self.role is Role.ADMIN and TokenScope.ADMIN in self.scopes


@dataclass(frozen=True, slots=True)
class UserRecord:
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

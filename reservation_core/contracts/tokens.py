"""Tokens, on the wire."""

from typing import Annotated

from pydantic import Field

from reservation_core.contracts.base import Duration, Line, Time, UserName, Wire
from reservation_core.contracts.bookings import Instant
from reservation_core.domain.people.token_budgets import MOST_HOURS
from reservation_core.domain.people.token_scopes import TokenScope


class TokenBudget(Wire):
    """So many GPU-hours may be asked for with a token until then, and after that none.

    Without `until` it ends with the budget of the token that it is made with, or else with the token.
    """

    gpu_hours: Annotated[float, Field(strict=True, gt=0, le=MOST_HOURS, allow_inf_nan=False)]
    until: Annotated[Instant, Field(strict=True)] | None = None


class TokenBudgetOut(Wire):
    """A budget, the token that has it, and how much of it is used.

    What waits, runs or is booked counts in full, and what is over by the GPU time that it held.
    """

    token: str
    gpu_hours: float
    until: Time | None
    used_gpu_hours: float


class TokenCreate(Wire):
    """A token for oneself, or (administrators) for `user`."""

    name: Annotated[Line, Field(min_length=1, max_length=200)] | None = None
    user: UserName | None = None
    expires_in: Duration | None = None
    scopes: Annotated[list[TokenScope], Field(min_length=1, max_length=len(TokenScope))] | None = None
    budget: TokenBudget | None = None


class TokenRenew(Wire):
    """What the token that asks is from now on: 32 to 512 printable ASCII characters, random ones."""

    token: Annotated[str, Field(strict=True, min_length=32, max_length=512, pattern=r"^[!-~]+$", repr=False)]


class TokenOut(Wire):
    """A token without its secret. It ends with the token that it was made with, and is good for nothing beyond that.

    A browser's `session` is good for the pages alone. `budget` is its own, or that of the nearest token before it.
    """

    id: str
    user: str
    name: str | None
    created_at: Time
    expires_at: Time | None
    revoked_at: Time | None
    last_used_at: Time | None
    scopes: list[TokenScope]
    made_with: str | None
    session: bool
    budget: TokenBudgetOut | None


class TokensRevoked(Wire):
    """How many tokens of whom were revoked."""

    user: str
    revoked: int


class TokenCreated(TokenOut):
    """The one time a token's secret is shown; null when the answer is repeated for the same Idempotency-Key."""

    token: str | None

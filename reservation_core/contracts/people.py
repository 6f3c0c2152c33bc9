"""Users and tokens over REST."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from reservation_core.contracts.base import Duration, Instant, Line, Text, Time, UserName, Wire
from reservation_core.domain.people.token_budgets import MOST_HOURS
from reservation_core.domain.sessions.secret_uses import LONGEST_SECRET
from reservation_core.domain.statuses import BookingStatus, JobStatus, Role, TokenScope


def _refuse_long_secret(value: str) -> str:
    if len(value.encode()) > LONGEST_SECRET:
        raise ValueError(f"must be at most {LONGEST_SECRET} bytes in UTF-8")
    return value


class UserCreate(Wire):
    name: UserName
    role: Role = Role.USER


class UserOut(Wire):
    name: str
    role: Role
    created_at: Time
    disabled_at: Time | None


class BelongingOut(Wire):
    """An unfinished job or booking of a disabled user. `starts_at`: when it began to run, or the start of its slot."""

    id: str
    kind: Literal["job", "booking"]
    status: JobStatus | BookingStatus
    name: str | None
    starts_at: Time | None
    ends_at: Time | None


class UserDisabled(UserOut):
    """A disabled user. `cancelled` counts what this request cancelled or asked to end.

    `left` lists unfinished jobs and bookings, the oldest first, at most 1000; `left_in_all` counts them.
    """

    cancelled: Annotated[int, Field(ge=0)]
    left: list[BelongingOut]
    left_in_all: Annotated[int, Field(ge=0)]


class TokenBudget(Wire):
    """How many GPU-hours may be requested with a token until `until`.

    Without `until` the budget ends with that of the token that creates it, or with the token itself.
    """

    gpu_hours: Annotated[float, Field(strict=True, gt=0, le=MOST_HOURS, allow_inf_nan=False)]
    until: Annotated[Instant, Field(strict=True)] | None = None


class TokenBudgetOut(Wire):
    """A budget, the token that has it, and the used part.

    Waiting, running and booked reservations count in full, finished ones by the GPU time that they held.
    """

    token: str
    gpu_hours: float
    until: Time | None
    used_gpu_hours: float


class TokenCreate(Wire):
    """A token for the caller, or (administrators) for `user`."""

    name: Annotated[Line, Field(min_length=1, max_length=200)] | None = None
    user: UserName | None = None
    expires_in: Duration | None = None
    scopes: Annotated[list[TokenScope], Field(min_length=1, max_length=len(TokenScope))] | None = None
    budget: TokenBudget | None = None


class TokenRenew(Wire):
    """The new secret of the calling token: 32 to 512 random printable ASCII characters."""

    token: Annotated[str, Field(strict=True, min_length=32, max_length=512, pattern=r"^[!-~]+$", repr=False)]


class TokenOut(Wire):
    """A token without its secret. It expires with the token that created it and has no more scopes.

    A browser's `session` works for the pages only. `budget` is its own or that of the nearest token before it.
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
    user: str
    revoked: int


class TokenCreated(TokenOut):
    """A new token with its secret, shown only once; null when the response is repeated for an Idempotency-Key."""

    token: str | None


class SecretSet(Wire):
    """The value of a secret. No answer has it."""

    value: Annotated[
        Text, Field(min_length=1, max_length=LONGEST_SECRET, repr=False), AfterValidator(_refuse_long_secret)
    ]


class SecretOut(Wire):
    """A secret without its value. `updated_at`: when its present value was set."""

    name: str
    created_at: Time
    updated_at: Time

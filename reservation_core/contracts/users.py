"""The wire of disabling users: what was cancelled, and what they still have."""

from typing import Annotated, Literal

from pydantic import Field

from reservation_core.contracts.base import Time, UserName, Wire
from reservation_core.domain.model import BookingStatus, JobStatus, Role


class UserCreate(Wire):
    """A new user."""

    name: UserName
    role: Role = Role.USER


class UserOut(Wire):
    """A user."""

    name: str
    role: Role
    created_at: Time
    disabled_at: Time | None


class BelongingOut(Wire):
    """A job or booking of a disabled user that is not over. `starts_at` is when it runs or ran from, or its slot's."""

    id: str
    kind: Literal["job", "booking"]
    status: JobStatus | BookingStatus
    name: str | None
    starts_at: Time | None
    ends_at: Time | None


class UserDisabled(UserOut):
    """A user who is disabled. `cancelled` counts what this request has cancelled or asked to end.

    `left` is what is not over, the oldest first, at most 1000; `left_in_all` counts it.
    """

    cancelled: Annotated[int, Field(ge=0)]
    left: list[BelongingOut]
    left_in_all: Annotated[int, Field(ge=0)]

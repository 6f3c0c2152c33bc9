"""Users over REST, and what a disabled user still has."""

from typing import Annotated, Literal

from pydantic import Field

from reservation_core.contracts.base import Time, UserName, Wire
from reservation_core.domain.model import BookingStatus, JobStatus, Role


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

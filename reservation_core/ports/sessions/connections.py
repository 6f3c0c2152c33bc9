"""Jobs that a user may enter, and the open connections to jobs."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from reservation_core.domain.sessions.ways_in import Place, Way
from reservation_core.domain.statuses import JobStatus


@dataclass(frozen=True, slots=True)
class JobToEnter:
    """A job of a user's or a shared one. `folder_goes`: its programs start in a folder that is deleted with it.

    `elements`: how many an array has; None for other jobs.
    """

    id: str
    name: str | None
    status: JobStatus
    attempt: int
    nodes: int
    ends_at: datetime | None
    places: Mapping[int, Place]  # by rank
    own: bool
    folder_goes: bool
    elements: int | None


@dataclass(frozen=True, slots=True)
class NewConnection:
    """A connection before it is stored. `credential`: the id of the token or key that opened it."""

    job_id: str
    user_id: int
    credential: str | None
    way: Way
    address: str | None


@dataclass(frozen=True, slots=True)
class HeldConnection:
    """A stored connection that a process has open, to an attempt of its job."""

    id: int
    noted: NewConnection
    attempt: int
    opened_at: datetime
    last_byte_at: datetime


@dataclass(frozen=True, slots=True)
class OpenConnection:
    """A connection as others see it."""

    user: str
    way: Way
    address: str | None
    opened_at: datetime
    last_byte_at: datetime

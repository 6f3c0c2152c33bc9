"""Passes to apps of jobs: tickets that are good once, and what browsers get for them."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class AppAddress:
    """A port of a running job at which an app listens."""

    job_id: str
    port: int


@dataclass(frozen=True, slots=True)
class NewTicket:
    """A ticket before it is stored. `credential`: the id of the token that it was made with."""

    digest: bytes
    app: AppAddress
    user_id: int
    credential: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class AppPass:
    """The user of a valid pass, and the token that it was made with."""

    user_id: int
    user: str
    credential: str

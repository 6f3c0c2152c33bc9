"""What a search finds."""

from dataclasses import dataclass
from datetime import datetime

from reservation_core.domain.similar_names import FoundKind


@dataclass(frozen=True, slots=True)
class Found:
    """A thing that matches. `id`: a job's or booking's id, a node's or user's name; `user`: the owner."""

    kind: FoundKind
    id: str
    name: str | None = None
    status: str | None = None
    user: str | None = None
    starts_at: datetime | None = None

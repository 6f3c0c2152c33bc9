"""Connections to running jobs over REST."""

from reservation_core.contracts.base import Time, Wire
from reservation_core.domain.sessions.ways_in import Way


class JobConnection(Wire):
    """An open connection to a job. `last_byte_at` is right within some seconds."""

    user: str
    way: Way
    address: str | None
    opened_at: Time
    last_byte_at: Time

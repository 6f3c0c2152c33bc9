"""Where the time comes from."""

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Where `now` comes from."""

    def now(self) -> datetime:
        """The current time, timezone-aware UTC."""
        ...

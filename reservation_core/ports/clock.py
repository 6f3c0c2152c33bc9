"""The source of the time."""

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """The source of `now`."""

    def now(self) -> datetime:
        """The current time, timezone-aware UTC."""

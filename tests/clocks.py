"""A clock that a test sets."""

from datetime import UTC, datetime, timedelta

START = datetime(2030, 1, 1, 12, tzinfo=UTC)


class SettableClock:
    """See ports.clock.Clock: stands still until it is told to go on."""

    def __init__(self, at: datetime = START) -> None:
        self.at = at

    def now(self) -> datetime:
        """The time that was set."""
        return self.at

    def go_on(self, by: timedelta) -> datetime:
        """Let time pass; returns the new time."""
        self.at += by
        return self.at

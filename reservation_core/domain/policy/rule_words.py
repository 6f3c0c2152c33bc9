"""Limits, times and amounts in messages."""

from datetime import datetime, timedelta

from reservation_core.domain.policy.limits import Scope

_HOUR = timedelta(hours=1)


def scope_text(scope: Scope) -> str:
    """The scope of a limit, in a message."""
    owner = (
        f"user {scope.user}" if scope.user is not None else f"project {scope.project}" if scope.project else "everybody"
    )
    return owner if scope.gpu_type is None else f"{owner}, {scope.gpu_type}"


def moment_text(moment: datetime) -> str:
    """A time to the minute, in UTC."""
    return f"{moment:%Y-%m-%dT%H:%MZ}"


def hours_text(time: timedelta) -> str:
    """A length in hours, to the hundredth."""
    return f"{time / _HOUR:.2f}".rstrip("0").rstrip(".")


def length_text(length: timedelta) -> str:
    """A length in its largest whole unit."""
    seconds = int(length.total_seconds())
    for size, word in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds and seconds % size == 0:
            return counted(seconds // size, word)
    return counted(seconds, "second")


def counted(number: int, word: str) -> str:
    """A number with its noun."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"

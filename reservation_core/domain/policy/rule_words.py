"""Limits, times and amounts in messages."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # For an annotation alone: `counted` needs no policy.
    from reservation_core.domain.policy.nouns import Scope

_HOUR = timedelta(hours=1)


def scope_text(scope: "Scope") -> str:
    """The scope of a limit, in a message."""
    owner = (
        f"user {scope.user}" if scope.user is not None else f"project {scope.project}" if scope.project else "everybody"
    )
    return owner if scope.gpu_type is None else f"{owner}, {scope.gpu_type}"


def beside_text(held: int, scope: "Scope", at: datetime, now: datetime) -> str:
    """What a quota of this scope counts from a time on beside what is asked for: administrators read it, too."""
    whose = "the same user" if scope.project is None else f"project {scope.project}"
    since = "now" if at <= now else f"from {moment_text(at)} on"
    return f" beside {held} of {whose} {since}" if held else ""


def moment_text(moment: datetime) -> str:
    """A time to the minute, in UTC."""
    return f"{moment:%Y-%m-%dT%H:%MZ}"


def hours_text(time: timedelta) -> str:
    """A length in hours, to the hundredth."""
    return f"{time / _HOUR:.2f}".rstrip("0").rstrip(".")


def counted(number: int, word: str) -> str:
    """A number with its noun."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def most_at_once(limit: int, held: int) -> str:
    """The advice to a request over the limit; `held`: what is taken from it at that time."""
    if limit == 0:
        return "Ask an administrator for more"
    if limit <= held:
        return f"Ask for another time and at most {counted(limit, 'GPU')}"
    later = f", or for another time and at most {counted(limit, 'GPU')}" if held else ""
    return f"Ask for at most {counted(limit - held, 'GPU')}{later}"

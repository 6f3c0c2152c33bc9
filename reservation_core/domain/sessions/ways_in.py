"""The ways into a job, and when those inside are warned of its end."""

from datetime import datetime, timedelta
from enum import StrEnum

WARNED_BEFORE = tuple(timedelta(minutes=minutes) for minutes in (30, 15, 5, 1))
_MINUTE = timedelta(minutes=1)


class Way(StrEnum):
    """How a user is connected to a job."""

    EXEC = "exec"
    ATTACH = "attach"
    FORWARD = "forward"
    SSH = "ssh"
    TERMINAL = "terminal"
    APP = "app"


def due_warnings(opened_at: datetime, ends_at: datetime, now: datetime) -> frozenset[tuple[datetime, timedelta]]:
    """The warnings of this end that a connection should have had by now: the end, and how long before it.

    A connection gets none for moments before it was opened.
    """
    return frozenset((ends_at, before) for before in WARNED_BEFORE if opened_at <= ends_at - before <= now < ends_at)


def warning_text(job_id: str, ends_at: datetime, now: datetime) -> str:
    """What a terminal shows before the end."""
    minutes = max(1, round((ends_at - now) / _MINUTE))
    left = "1 minute" if minutes == 1 else f"{minutes} minutes"
    return f"{job_id} ends in {left}. To extend it: gpu-dev extend {job_id} --by 1h"

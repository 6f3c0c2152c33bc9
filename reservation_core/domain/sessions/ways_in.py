"""The ways into a job, and when those inside are warned of its end."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from reservation_core.domain.time_words import time_words

WARNED_BEFORE = tuple(timedelta(minutes=minutes) for minutes in (30, 15, 5, 1))
_MINUTE = timedelta(minutes=1)
_WITH_RANK = re.compile(r"(.+)\+([0-9]{1,4})")


class Way(StrEnum):
    """How a user is connected to a job."""

    EXEC = "exec"
    ATTACH = "attach"
    FORWARD = "forward"
    SSH = "ssh"
    TERMINAL = "terminal"
    APP = "app"


def split_rank(reference: str) -> tuple[str, int] | None:
    """The job and the rank that an SSH user name such as `box+1` stands for, unless a job has that name; or None.

    A user name is all that an SSH client says before it has a channel. `+` needs no quotes in shells, and is in no id.
    """
    found = _WITH_RANK.fullmatch(reference)
    return None if found is None else (found[1], int(found[2]))


def due_warnings(opened_at: datetime, ends_at: datetime, now: datetime) -> frozenset[tuple[datetime, timedelta]]:
    """The warnings of this end that a connection should have had by now: the end, and how long before it.

    A connection gets none for moments before it was opened.
    """
    return frozenset((ends_at, before) for before in WARNED_BEFORE if opened_at <= ends_at - before <= now < ends_at)


@dataclass(frozen=True, slots=True)
class Place:
    """GPUs of a job on one node; without a type it has CPUs and memory alone."""

    node: str
    gpu_type: str | None
    gpu_indices: tuple[int, ...]


def greeting(job_id: str, name: str | None, place: Place | None, ends_at: datetime | None, *, folder_goes: bool) -> str:
    """What a login shell shows first: where one is, with which GPUs, until when, and what stays."""
    named = f"{job_id} ({name})" if name else job_id
    lines = [f"Session {named}"]
    if place is not None:
        gpus = "GPU" if len(place.gpu_indices) == 1 else "GPUs"
        numbers = ", ".join(map(str, place.gpu_indices))
        given = "CPUs and memory" if place.gpu_type is None else f"{gpus} {numbers} ({place.gpu_type})"
        lines.append(f"{given} on {place.node}")
    if ends_at is not None:
        lines.append(f"Ends {time_words(ends_at, UTC)}. To extend it: gpu-dev extend {job_id} --by 1h")
    if folder_goes:
        lines.append("Files in this folder are deleted when the session ends: keep results elsewhere.")
    return "".join(f"{line}\r\n" for line in lines)


def warning_text(job_id: str, ends_at: datetime, now: datetime) -> str:
    """What a terminal shows before the end."""
    minutes = max(1, round((ends_at - now) / _MINUTE))
    left = "1 minute" if minutes == 1 else f"{minutes} minutes"
    return f"{job_id} ends in {left}. To extend it: gpu-dev extend {job_id} --by 1h"

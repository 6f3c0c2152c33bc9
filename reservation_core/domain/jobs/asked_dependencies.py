"""What a job may wait for: other jobs, and how far each has to be. On nothing but the standard library."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

MOST_DEPENDENCIES: Final = 1000
"""The most jobs that one job waits for."""


class DependencyWhen(StrEnum):
    """How far another job has to be before a job can start.

    `ended` is any end, and `failed` any end but success: an error, a cancellation or the end of its time.
    """

    SUCCEEDED = "succeeded"
    ENDED = "ended"
    FAILED = "failed"
    STARTED = "started"


class DependencyState(StrEnum):
    """Whether the other job is as far (`met`), may still be (`open`), or never will be (`impossible`)."""

    OPEN = "open"
    MET = "met"
    IMPOSSIBLE = "impossible"


class Dependency(NamedTuple):
    """A job that another one waits for, by its id."""

    job: str
    when: DependencyWhen


def fault_of_dependencies(jobs: Sequence[str]) -> str | None:
    """Why a job can't wait for these together; None where it can."""
    seen: set[str] = set()
    for job in jobs:
        if job in seen:
            return f"{job} is named twice; name each job once"
        seen.add(job)
    return None


def read_dependency(text: str) -> tuple[DependencyWhen, str] | None:
    """A dependency from `ok:ID`, `any:ID`, `failed:ID`, `started:ID`, or `ID` (as `ok:ID`); None for other text."""
    word, colon, job = text.rpartition(":")
    when = _BY_WORD.get(word.strip().lower()) if colon else DependencyWhen.SUCCEEDED
    return None if when is None or not job.strip() else (when, job.strip())


def written_dependency(job: str, when: DependencyWhen) -> str:
    """A dependency as `read_dependency` reads it."""
    return f"{_WORDS[when]}:{job}"


_WORDS: Final = {
    DependencyWhen.SUCCEEDED: "ok",
    DependencyWhen.ENDED: "any",
    DependencyWhen.FAILED: "failed",
    DependencyWhen.STARTED: "started",
}
_BY_WORD: Final = {word: when for when, word in _WORDS.items()} | {when.value: when for when in DependencyWhen}

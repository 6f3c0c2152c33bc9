"""Paths of `cp`: here, or in a job as `ID:PATH`."""

from dataclasses import dataclass

from gpu_dev.errors import UsageError


@dataclass(frozen=True, slots=True)
class JobPath:
    """A path in a job; a relative one begins at the job's folder."""

    job: str
    path: str


def read_path(text: str) -> JobPath | str:
    """A path in a job, or one of this machine: text without a colon, or with a slash before it, as with scp."""
    job, colon, path = text.partition(":")
    if not colon or "/" in job or not job:
        return text
    return JobPath(job, path or ".")


def read_paths(source: str, target: str) -> tuple[JobPath, str, bool]:
    """The path in the job, the one here, and whether it is copied into the job. Raises UsageError."""
    first, second = read_path(source), read_path(target)
    if isinstance(first, JobPath) and isinstance(second, str):
        return first, second, False
    if isinstance(first, str) and isinstance(second, JobPath):
        return second, first, True
    raise UsageError(
        "One of the two paths must be in a job, written ID:PATH, and the other one here.",
        next_command="gpu-dev cp results.csv ID:data/",
    )

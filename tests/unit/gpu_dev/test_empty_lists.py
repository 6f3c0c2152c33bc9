"""A list of no jobs speaks of what was asked for, and of nothing else."""

import pytest

from gpu_dev.commands.jobs.empty_lists import listed_jobs
from reservation_core.domain.model import JobStatus

FAILED, QUEUED = JobStatus.FAILED, JobStatus.QUEUED


@pytest.mark.parametrize(
    ("statuses", "all_", "user", "shared", "array_id", "begins"),
    [
        ((), False, None, False, None, "No jobs wait or run. Start one: "),
        ((), True, None, False, None, "No jobs yet. Start one: "),
        ((FAILED,), False, None, False, None, "No job is failed. All jobs: gpu-dev list --all"),
        ((FAILED, QUEUED, FAILED), True, None, False, None, "No job is failed or queued. All jobs: "),
        ((), False, "ben", False, None, "No job of ben waits or runs. Only administrators see other users' jobs, "),
        ((), True, "ben", False, None, "ben has no job. Only administrators see other users' jobs, "),
        ((QUEUED,), False, "ben", False, None, "No job of ben is queued. Only administrators see "),
        ((), False, None, True, None, "No job that is shared with you waits or runs. Ended ones: gpu-dev list"),
        ((), True, None, True, None, "No job is shared with you"),
        ((FAILED,), False, "ben", True, None, "No job of ben that is shared with you is failed"),
        ((FAILED,), False, None, False, "job-1qrc0x82", "No element of job-1qrc0x82 is failed. All elements: "),
    ],
)  # fmt: skip
def test_an_empty_list_says_what_was_asked_for(
    statuses: tuple[JobStatus, ...], all_: bool, user: str | None, shared: bool, array_id: str | None, begins: str
) -> None:
    words = listed_jobs(statuses, all_=all_, user=user, shared=shared, array_id=array_id).empty
    assert words.startswith(begins)
    assert ("administrators" in words) == (user is not None and not shared)

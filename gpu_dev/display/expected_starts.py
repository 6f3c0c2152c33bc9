"""The start of a waiting job in words: as learnt from how long jobs really run, or else as planned."""

from datetime import datetime
from typing import TYPE_CHECKING

from gpu_dev.display.local_times import local_time, minute, slot_words

if TYPE_CHECKING:
    from gpu_dev.wire.jobs import Job, QueueEntry


def expected_start(job: "Job | QueueEntry") -> datetime | None:
    """When it starts in half of all cases; without a prediction, when its GPUs are free at the latest."""
    return job.estimated_start_at if job.estimated_start is None else job.estimated_start.p50


def start_words(job: "Job | QueueEntry") -> str:
    """`Thu 26 Nov 2026 14:20 CET, nine times in ten by 15:10 CET`; empty without an estimate."""
    likely = job.estimated_start
    if likely is None:
        return local_time(job.estimated_start_at)
    half = minute(likely.p50)
    if half == minute(likely.p90):
        return half
    return f"{half}, nine times in ten by {slot_words(likely.p50, likely.p90).rpartition(' to ')[2]}"


def nine_in_ten(job: "Job | QueueEntry") -> str:
    """The time by which it starts in nine of ten cases; empty without a prediction."""
    return "" if job.estimated_start is None else minute(job.estimated_start.p90)

"""Sentences on the losses of cancelled jobs."""

from collections.abc import Sequence

from api_service.web.jobs.expected_starts import keeps_promise
from reservation_core.contracts.base import JobArray
from reservation_core.contracts.jobs import Job
from reservation_core.domain.policy.rule_words import counted
from reservation_core.domain.status_words import queue_words
from reservation_core.domain.statuses import JobStatus
from reservation_core.domain.time_words import rfc3339


def what_waiting_loses(job: Job) -> list[str]:
    """The place in the queue, and the start that was promised."""
    if job.array is not None:
        return _what_arrays_lose(job.array)
    place = "its place in the queue"
    if job.queue_position is not None:
        place = f"place {job.queue_position} in {queue_words(job.gpu_type, job.booking_id, job.gpus)}"
    is_kept = keeps_promise(job)
    expected = job.promised_start_at if is_kept else job.estimated_start_at
    if expected is None:
        lost = f"The job loses {place}."
    else:
        kind = "promised" if is_kept else "estimated"
        lost = f"The job loses {place} and its {kind} start at {rfc3339(expected)}."
    return [lost, "A job that you submit again goes to the end of the queue."]


def what_running_loses(job: Job) -> list[str]:
    """What it has not saved, and its GPUs."""
    if job.array is not None:
        return _what_arrays_lose(job.array)
    since = "" if job.started_at is None else f", which it has held since {rfc3339(job.started_at)}"
    nodes = ", ".join(part.node for part in job.allocations)
    count = job.gpus * job.nodes
    gpus = f"{count} {job.gpu_type or ''} {'GPU' if count == 1 else 'GPUs'}".replace("  ", " ")
    gpus = gpus if count else "its CPUs and memory"
    given = f"It gives back {gpus}{f' on {nodes}' if nodes else ''}{since}."
    return ["The job ends, and what it has not saved is lost.", given]


def _what_arrays_lose(array: JobArray) -> list[str]:
    lost = []
    if array.running:
        ends = "ends" if array.running == 1 else "end"
        lost.append(f"{counted(array.running, 'running element')} {ends}, and unsaved work is lost.")
    if array.queued:
        lost.append(f"{counted(array.queued, 'waiting element')} will not start.")
    return [*lost, "Elements that are over stay as they are."]


def what_jobs_lose(jobs: Sequence[Job], user: str) -> list[str]:
    """How many end or lose their places, and which these are; `user` is who asks."""
    waiting = sum(job.status is JobStatus.QUEUED for job in jobs)
    held = len(jobs) - waiting
    lost = []
    if held:
        lost.append(f"{held} {'has GPUs: it ends' if held == 1 else 'have GPUs: they end'}, and unsaved work is lost.")
    if waiting:
        their = "waits: it loses its place" if waiting == 1 else "wait: they lose their places"
        lost.append(f"{waiting} {their} in the queue.")
    named = (f"{job.name or job.id} ({job.status}{'' if job.user == user else f', of {job.user}'})" for job in jobs)
    return [*lost, f"{', '.join(named)}."]

"""What `gpu-dev list` says where it finds no job: what was asked for, and whose jobs are seen."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from gpu_dev.display.output import View
from gpu_dev.display.views import JOB

if TYPE_CHECKING:
    from gpu_dev.wire.jobs import Job
    from reservation_core.domain.statuses import JobStatus


_OTHERS = "Only administrators see other users' jobs, except those that are shared: gpu-dev list --shared"


def listed_jobs(
    statuses: "Collection[JobStatus]",
    *,
    all_: bool,
    user: str | None,
    shared: bool,
    array_id: str | None,
    is_seen: bool = False,
) -> "View[Job]":
    """The table of jobs, with the sentence for a list of none. `is_seen`: all jobs of `user` are in the list."""
    status = " or ".join(dict.fromkeys(statuses))
    words = _sentence(status, all_=all_, user=user, shared=shared, array_id=array_id, is_seen=is_seen)
    return View(JOB.name, JOB.columns, empty=words)


def _sentence(status: str, *, all_: bool, user: str | None, shared: bool, array_id: str | None, is_seen: bool) -> str:
    if array_id is not None:
        return f"No element of {array_id} is {status or 'there'}. All elements: gpu-dev list --elements {array_id}"
    kind = f" is {status}" if status else "" if all_ else " waits or runs"
    if shared:
        whose = "" if user is None else f" of {user}"
        ended = "" if status or all_ else ". Ended ones: gpu-dev list --shared --all"
        return f"No job{whose} that is shared with you{kind}{ended}" if kind else f"No job{whose} is shared with you"
    if user is not None:
        found = f"No job of {user}{kind}" if kind else f"{user} has no job"
        return f"{found}." if is_seen else f"{found}. {_OTHERS}"
    if status:
        return f"No job{kind}. All jobs: gpu-dev list --all"
    return "No jobs yet. Start one: gpu-dev run --gpus 1 --for 1h -- python train.py" if all_ else JOB.empty

"""`scancel`: end running jobs, and take waiting jobs out of the queue."""

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING

from gpu_dev.errors import ApiError, ClientError, ExitCode
from gpu_dev.server.connection import resolve
from gpu_dev.slurm.job_lines import state_of
from gpu_dev.slurm.reading.list_options import SCANCEL
from gpu_dev.slurm.reading.words import Remark, read_words
from gpu_dev.slurm.saying import last_values, refuse, remarks_of, show_help, warn
from gpu_dev.terminal import say
from reservation_core.domain.statuses import FINAL_STATUSES, JobStatus

if TYPE_CHECKING:
    from gpu_dev.client import GpuDevClient
    from gpu_dev.wire.jobs import Job

_USAGE = "Usage: scancel [OPTIONS] [ID]..."
_NOTHING = "Nothing was cancelled. All options and what they are here: scancel --help"
_OPEN = frozenset(JobStatus) - FINAL_STATUSES
_STATES = {"PENDING": JobStatus.QUEUED, "PD": JobStatus.QUEUED, "RUNNING": JobStatus.RUNNING, "R": JobStatus.RUNNING}
_ATTEMPTS = 5
_FILTERS = ("me", "user", "name", "jobname", "state")


def main(words: Sequence[str]) -> int:
    """Cancel jobs, as many as can be; returns the exit code of the first that could not."""
    typed = read_words(words, SCANCEL, mixed=True)
    if show_help(_USAGE, SCANCEL, typed.given):
        return ExitCode.OK
    refusals, warnings = remarks_of(typed)
    values = last_values(typed)
    ids = [one for word in typed.operands for one in word.split(",") if one]
    if not ids and not values.keys() & {*_FILTERS}:
        refusals.append(Remark(None, "ID", "Name jobs, or choose yours with --me, --name or --state."))
    if (state := values.get("state")) is not None and state.upper() not in _STATES:
        refusals.append(Remark(None, f"--state={state}", f"There are {', '.join(_STATES)}."))
    refuse("scancel", refusals, _NOTHING)
    if "quiet" not in values:
        warn("scancel", warnings)

    # Loaded here: a command that is refused needs no client.
    from gpu_dev.session import client_of

    with client_of(resolve(None, None, os.environ)) as client:
        # Administrators see all jobs: without ids only those of a user who is named are meant, or their own.
        is_own = "user" not in values and ("me" in values or not ids)
        owner = client.me().name if is_own else values.get("user")
        if ids:
            from gpu_dev.slurm.job_ids import whole_ids

            found = whole_ids(client, ids, "scancel", _NOTHING)
        else:
            found = [job.id for job in client.jobs(_OPEN, user=owner) if _is_wanted(job, owner, values)]
        return _cancel(client, found, lambda job: _is_wanted(job, owner, values))


def _is_wanted(job: "Job", owner: str | None, values: Mapping[str, str | None]) -> bool:
    state = values.get("state")
    return (
        owner in (None, job.user)
        and values.get("name", job.name) == job.name
        and values.get("jobname", job.name) == job.name
        and (state is None or state_of(_STATES[state.upper()]) == state_of(job.status))
    )


def _cancel(client: "GpuDevClient", ids: Sequence[str], is_wanted: "Callable[[Job], bool]") -> int:
    """Cancel jobs, those that `is_wanted` says; returns the exit code."""
    from gpu_dev.display.local_times import local_sentence

    code = ExitCode.OK
    for job_id in ids:
        try:
            _cancel_one(client, job_id, is_wanted)
        except ClientError as error:
            detail = local_sentence(error.detail) if isinstance(error, ApiError) else error.detail
            say(f"scancel: error: {job_id}: {detail}")
            code = code or error.exit_code
    return code


def _cancel_one(client: "GpuDevClient", job_id: str, is_wanted: "Callable[[Job], bool]") -> None:
    """Cancel a job as it was read: one that has changed since then, as by its start, is read again."""
    for attempt in itertools.count(1):
        job, tag = client.job_with_etag(job_id)
        if not is_wanted(job):
            return
        try:
            client.cancel(job_id, if_match=tag)
        except ApiError as error:
            if error.problem.status != HTTPStatus.PRECONDITION_FAILED or attempt == _ATTEMPTS:
                raise
        else:
            return

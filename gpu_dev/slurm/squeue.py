"""`squeue`: your open jobs; for administrators those of all users."""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gpu_dev.errors import ExitCode
from gpu_dev.server.connection import resolve
from gpu_dev.slurm.formats import Column, UnknownFieldError, read_format, table_lines
from gpu_dev.slurm.job_lines import job_fields, state_of
from gpu_dev.slurm.reading.list_options import SQUEUE
from gpu_dev.slurm.reading.words import Remark, read_words
from gpu_dev.slurm.saying import last_values, refuse, remarks_of, show_help, warn
from gpu_dev.terminal import put
from gpu_dev.wire.jobs import Job
from reservation_core.domain.statuses import FINAL_STATUSES, JobStatus

if TYPE_CHECKING:
    from gpu_dev.client import GpuDevClient

_USAGE = "Usage: squeue [OPTIONS]"
_SHOWN_NOTHING = "All options and what they are here: squeue --help"
_USUAL = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
_LONG = "%.18i %.9P %.8j %.8u %.9T %.10M %.11l %.6D %R"
_STARTS = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %R"
_OPEN = frozenset(JobStatus) - FINAL_STATUSES


def main(words: Sequence[str]) -> int:
    """Print the jobs; returns the exit code."""
    typed = read_words(words, SQUEUE, mixed=True)
    if show_help(_USAGE, SQUEUE, typed.given):
        return ExitCode.OK
    refusals, warnings = remarks_of(typed)
    values = last_values(typed)
    statuses = _statuses(values.get("states"), refusals)
    now = datetime.now(UTC)  # noqa: TID251 - the client has no clock port
    columns, after = _columns(values, now, refusals)
    refuse("squeue", refusals, _SHOWN_NOTHING)
    warn("squeue", warnings)

    # Loaded here: a command that is refused needs no client.
    from gpu_dev.session import client_of

    with client_of(resolve(None, None, os.environ)) as client:
        jobs = [job for job in _jobs(client, values, statuses) if _is_wanted(job, values)]
    if "start" in values:
        jobs = [job for job in jobs if job.status is JobStatus.QUEUED]
    put(table_lines(jobs, columns, after, titles="noheader" not in values))
    return ExitCode.OK


def _statuses(text: str | None, refusals: list[Remark]) -> Collection[JobStatus]:
    if text is None:
        return _OPEN
    if text.lower() == "all":
        return frozenset(JobStatus)
    by_name = {name: status for status in JobStatus for name in state_of(status)}
    names = [name.strip().upper() for name in text.split(",")]
    if unknown := [name for name in names if name not in by_name]:
        known = ", ".join(state_of(status)[0] for status in JobStatus)
        refusals.append(Remark(None, f"--states={text}", f"{unknown[0]} is no state here. There are {known}, and all."))
    return frozenset(by_name[name] for name in names if name in by_name)


def _columns(values: Mapping[str, str | None], now: datetime, refusals: list[Remark]) -> tuple[list[Column[Job]], str]:
    form = values.get("format") or (_STARTS if "start" in values else _LONG if "long" in values else _USUAL)
    fields = job_fields(now)
    try:
        return read_format(form, fields)
    except UnknownFieldError as error:
        known = " ".join(f"%{letter}" for letter in fields)
        refusals.append(Remark(None, f"--format={form}", f"{error} is no column here. There are {known}."))
        return [], ""


def _jobs(client: "GpuDevClient", values: Mapping[str, str | None], statuses: Collection[JobStatus]) -> Iterator[Job]:
    """Waiting jobs in the order of the queue, then the others, newest first; those with ids in the order of these."""
    owner = client.me().name if "me" in values else None
    if (ids := values.get("jobs")) is not None:
        from gpu_dev.slurm.job_ids import whole_ids

        named = map(client.job, whole_ids(client, ids.split(","), "squeue", _SHOWN_NOTHING))
        yield from (job for job in named if job.status in statuses and owner in (None, job.user))
    else:
        yield from sorted(client.jobs(statuses, user=owner), key=_place)


def _place(job: Job) -> tuple[bool, float]:
    position = float("inf") if job.queue_position is None else job.queue_position
    return job.status is not JobStatus.QUEUED, position


def _is_wanted(job: Job, values: Mapping[str, str | None]) -> bool:
    filters = {"user": job.user, "name": job.name, "account": job.project}
    return all(value in (values[option] or "").split(",") for option, value in filters.items() if option in values)

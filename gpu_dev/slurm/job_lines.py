"""Jobs in the terms of `squeue`."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import assert_never

from gpu_dev.display.expected_starts import expected_start
from gpu_dev.slurm.formats import Field
from gpu_dev.slurm.reading.time_limits import write_time
from gpu_dev.wire.jobs import Job
from reservation_core.domain.statuses import JobStatus

_NO_TIME = "N/A"
ANY_TYPE = "any"


def state_of(status: JobStatus) -> tuple[str, str]:
    """The short and the long name of a state."""
    match status:
        case JobStatus.QUEUED:
            return "PD", "PENDING"
        case JobStatus.STARTING:
            return "CF", "CONFIGURING"
        case JobStatus.RUNNING:
            return "R", "RUNNING"
        case JobStatus.ENDING:
            return "CG", "COMPLETING"
        case JobStatus.SUCCEEDED:
            return "CD", "COMPLETED"
        case JobStatus.FAILED:
            return "F", "FAILED"
        case JobStatus.CANCELLED:
            return "CA", "CANCELLED"
        case JobStatus.EXPIRED:
            return "TO", "TIMEOUT"
        case _:
            assert_never(status)


def job_fields(now: datetime) -> Mapping[str, Field[Job]]:
    """The columns of a table of jobs at a time."""
    return {
        "i": Field("JOBID", lambda job: job.id),
        "A": Field("JOBID", lambda job: job.id),
        "j": Field("NAME", lambda job: job.name or ""),
        "u": Field("USER", lambda job: job.user),
        "t": Field("ST", lambda job: state_of(job.status)[0]),
        "T": Field("STATE", lambda job: state_of(job.status)[1]),
        "M": Field("TIME", lambda job: write_time(_used(job, now))),
        "l": Field("TIME_LIMIT", lambda job: write_time(job.duration)),
        "L": Field("TIME_LEFT", lambda job: write_time(max(timedelta(), job.duration - _used(job, now)))),
        "D": Field("NODES", lambda job: str(job.nodes)),
        "N": Field("NODELIST", _nodes),
        "r": Field("REASON", lambda job: job.reason.code.value),
        "R": Field("NODELIST(REASON)", lambda job: _nodes(job) or f"({job.reason.code.value})"),
        "S": Field("START_TIME", lambda job: _time(job.started_at or expected_start(job))),
        "e": Field("END_TIME", lambda job: _time(job.finished_at or job.ends_at)),
        "V": Field("SUBMIT_TIME", lambda job: _time(job.created_at)),
        "Q": Field("PRIORITY", lambda job: str(job.priority)),
        "P": Field("PARTITION", lambda job: job.gpu_type or ANY_TYPE),
        "a": Field("ACCOUNT", lambda job: job.project or ""),
        "b": Field("TRES_PER_NODE", lambda job: f"gres/gpu:{f'{job.gpu_type}:' if job.gpu_type else ''}{job.gpus}"),
    }


def _used(job: Job, now: datetime) -> timedelta:
    if job.started_at is None:
        return timedelta()
    return max(timedelta(), (job.finished_at or now) - job.started_at)


def _nodes(job: Job) -> str:
    return ",".join(dict.fromkeys(allocation.node for allocation in job.allocations))


def _time(moment: datetime | None) -> str:
    return _NO_TIME if moment is None else moment.astimezone().strftime("%Y-%m-%dT%H:%M:%S")

"""What notifications say of the health of GPUs."""

from collections.abc import Mapping
from typing import Any

from reservation_core.domain.event_kinds import NodeEventKind


def gpu_words(event: str, gpu: str | None, data: Mapping[str, Any]) -> tuple[str, str, str]:
    """The title of a GPU (`node/index`), what happened to it, and what to do, for administrators."""
    title = f"GPU {gpu}"
    if event == NodeEventKind.GPU_SLOW:
        keep = f"To keep new jobs and bookings off it, quarantine it: `gpu-dev nodes quarantine {gpu}`."
        return title, f"{title} is slow.", f"Check its cooling and power. {keep}"
    job = data.get("job")
    goes_on = f" The job {job} has it and goes on." if job else ""
    happened = f"{title} is quarantined: no new job or booking gets it.{goes_on}"
    return title, happened, f"When it is repaired, release it: `gpu-dev nodes release {gpu}`."


def job_gpu_words(data: Mapping[str, Any], job: str) -> tuple[str, str]:
    """What happened to a GPU of a job, and what to do, for the job's owner."""
    gpu = f"GPU {data['gpu']}" if "gpu" in data else "A GPU"
    happened = f"{gpu} of {job} is quarantined. The job goes on."
    return happened, "Save its work and check its results: the GPU may be faulty."

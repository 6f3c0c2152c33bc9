"""The wire of what a job was asked for, so that the same can be asked for again."""

from datetime import timedelta
from typing import Annotated

from pydantic import Field

from reservation_core.contracts import Wire


class WorkloadSpec(Wire):
    """What a job runs."""

    image: str | None
    command: list[str]
    env: Annotated[
        dict[str, str | None],
        Field(description="Its variables. Their values are their owner's alone: null for everybody else."),
    ]
    working_dir: str | None


class JobSpec(Wire):
    """A job as it was asked for, its `duration` with every extension: for its owner what `POST /v1/jobs` takes."""

    name: str | None
    gpus: int
    gpu_type: str | None
    nodes: int
    duration: timedelta
    workload: WorkloadSpec
    priority: int
    booking_id: str | None
    project: str | None

"""The messages in the queues `gpu_jobs` and `pod_operations`, which are not part of REST."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class JobMessage(BaseModel):
    """A message in `gpu_jobs`: read this reservation (with `inventory`: the nodes) again. The row is the truth."""

    model_config = ConfigDict(extra="ignore", strict=True)

    v: Literal[1] = 1
    kind: Literal["submitted", "changed", "inventory"]
    id: Annotated[str, Field(max_length=64)] | None = None


class PodOperation(BaseModel):
    """A message in `pod_operations`: make the cluster match the row, if the row still has this attempt."""

    model_config = ConfigDict(extra="ignore", strict=True)

    v: Literal[1] = 1
    op: Literal["create", "delete", "deadline", "signal"]
    id: Annotated[str, Field(min_length=1, max_length=64)]
    attempt: Annotated[int, Field(ge=1)]

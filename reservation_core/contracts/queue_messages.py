"""The messages in the queues `gpu_jobs` and `pod_operations`: no part of REST."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class JobMessage(BaseModel):
    """On `gpu_jobs`: look at this reservation again (or, with `inventory`, at the nodes). The row is the truth."""

    model_config = ConfigDict(extra="ignore", strict=True)

    v: Literal[1] = 1
    kind: Literal["submitted", "changed", "inventory"]
    id: Annotated[str, Field(max_length=64)] | None = None


class PodOperation(BaseModel):
    """On `pod_operations`: bring the cluster to what the row says, if the attempt is still the row's."""

    model_config = ConfigDict(extra="ignore", strict=True)

    v: Literal[1] = 1
    op: Literal["create", "delete", "deadline"]
    id: Annotated[str, Field(min_length=1, max_length=64)]
    attempt: Annotated[int, Field(ge=1)]

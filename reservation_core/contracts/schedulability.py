"""Schedulability over REST: may this user use GPUs now?"""

from typing import Annotated

from pydantic import ConfigDict, Field

from reservation_core.contracts.base import MAX_GPUS_PER_NODE, MAX_NODES, ExactUserName, GpuTypeName, Line, Time, Wire
from reservation_core.domain.pods.booked_nodes import MOST_NODES


class AskingPod(Wire):
    """The pod that the question is about; without `uid` it does not exist yet."""

    uid: Annotated[Line, Field(min_length=1, max_length=128)] | None = None


class SchedulabilityAsk(Wire):
    """May this user use GPUs in that namespace now? `gpus` is the total; without `gpu_type` any type.

    With `pod` the question is about one pod: GPUs of the booking that others use are not free for it.
    """

    user: ExactUserName
    namespace: Annotated[Line, Field(min_length=1, max_length=253)]
    gpu_type: GpuTypeName | None = None
    gpus: Annotated[int, Field(strict=True, ge=1, le=MAX_GPUS_PER_NODE * MAX_NODES)] = 1
    pod: AskingPod | None = None


class Schedulability(Wire):
    """The answer. `until` is the end of the booking or, without one, when so many GPUs are no longer free (null: not
    in sight). `reason` says why, and if not schedulable the next step. `nodes` have GPUs of the booking, in a question
    about a pod only those with enough unused ones; null without a booking."""

    schedulable: bool
    until: Time | None
    gpu_type: str | None
    gpus: int | None
    booking_id: str | None
    reason: str
    nodes: Annotated[list[str], Field(max_length=MOST_NODES)] | None = None


class SeedSchedulabilityAsk(Wire):
    """The same question in the form of existing booking clients: an e-mail address and the token in the body."""

    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)

    user_email: Annotated[Line, Field(min_length=1, max_length=254)]
    namespace: Annotated[Line, Field(min_length=1, max_length=253)]
    token: Annotated[str, Field(strict=True, min_length=1, max_length=512)] | None = None


class SeedSchedulability(Wire):
    """The answer in the form of existing booking clients; `gpu` is the type of the booked GPUs."""

    schedulable: bool
    until: Time | None
    gpu: str | None

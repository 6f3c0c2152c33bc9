"""The wire of the question that enforcement asks: may this user use GPUs now?"""

from typing import Annotated

from pydantic import ConfigDict, Field

from reservation_core.contracts.base import MAX_GPUS_PER_NODE, MAX_NODES, ExactUserName, GpuTypeName, Line, Time, Wire
from reservation_core.domain.pods.booked_nodes import MOST_NODES


class AskingPod(Wire):
    """The pod that the question is about; without `uid` it is one that is not there yet."""

    uid: Annotated[Line, Field(min_length=1, max_length=128)] | None = None


class SchedulabilityAsk(Wire):
    """May this user use GPUs in that namespace now? `gpus` in all; `gpu_type` left out is any type.

    With `pod` the question is about one pod: what else is known to run in the booking is not free for it.
    """

    user: ExactUserName
    namespace: Annotated[Line, Field(min_length=1, max_length=253)]
    gpu_type: GpuTypeName | None = None
    gpus: Annotated[int, Field(strict=True, ge=1, le=MAX_GPUS_PER_NODE * MAX_NODES)] = 1
    pod: AskingPod | None = None


class Schedulability(Wire):
    """The answer. `until` is the end of the booking; without one, when so many GPUs are not free any more (null:
    nothing in the calendar ends it). `reason` says why, and what to do if not. `nodes` are those with GPUs of the
    booking, and in a question about a pod those of them where so many are unused; null without a booking."""

    schedulable: bool
    until: Time | None
    gpu_type: str | None
    gpus: int | None
    booking_id: str | None
    reason: str
    nodes: Annotated[list[str], Field(max_length=MOST_NODES)] | None = None


class SeedSchedulabilityAsk(Wire):
    """The same question as booking clients put it that exist already: an e-mail address and the token in the body."""

    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)

    user_email: Annotated[Line, Field(min_length=1, max_length=254)]
    namespace: Annotated[Line, Field(min_length=1, max_length=253)]
    token: Annotated[str, Field(strict=True, min_length=1, max_length=512)] | None = None


class SeedSchedulability(Wire):
    """The answer to it; `gpu` is the type of the booked GPUs."""

    schedulable: bool
    until: Time | None
    gpu: str | None

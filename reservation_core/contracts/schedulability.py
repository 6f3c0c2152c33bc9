"""Pods of other systems over REST: may a user use GPUs now, and which pods use bookings?"""

from typing import Annotated

from pydantic import ConfigDict, Field, model_validator

from reservation_core.contracts.base import (
    MAX_GPUS_PER_NODE,
    MAX_NODES,
    ExactUserName,
    GpuTypeName,
    Instant,
    Line,
    Time,
    Wire,
)
from reservation_core.domain.pods.booked_nodes import MOST_NODES
from reservation_core.domain.pods.pod_reports import ReportOutcome

MOST_PODS = 500

BookingId = Annotated[str, Field(strict=True, pattern=r"^bkg-[0-9a-z]{1,32}$")]
PodText = Annotated[Line, Field(min_length=1, max_length=253)]


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


class PodSeen(Wire):
    """A user's pod as seen in a cluster. `gpus` is its total; `since` is when it began (default: now).

    Without `booking_id` any fitting booking of the user counts. `ended_at`: the pod has finished. A `node` in its first
    report makes its GPUs count as used there.
    """

    user: ExactUserName
    namespace: PodText
    name: PodText
    uid: Annotated[Line, Field(min_length=1, max_length=128)]
    gpus: Annotated[int, Field(strict=True, ge=1, le=MAX_GPUS_PER_NODE)]
    gpu_type: GpuTypeName | None = None
    booking_id: BookingId | None = None
    node: PodText | None = None
    since: Instant | None = None
    ended_at: Instant | None = None

    @model_validator(mode="after")
    def _check_consistency(self) -> "PodSeen":
        if self.since is not None and self.ended_at is not None and self.ended_at < self.since:
            raise ValueError("`ended_at` must not be before `since`")
        return self


class PodsSeen(Wire):
    """Pods that use GPUs and were not made by this system. Repeated reports change nothing."""

    pods: Annotated[list[PodSeen], Field(min_length=1, max_length=MOST_PODS)]


class AdmissionOut(Wire):
    """The result for one report.

    `outcome`: `recorded`: the pod counts as use of `booking_id`, which ends at `until`; `ended`: it no longer counts;
    `unchanged`: already known; `no_booking` and `not_in_slot`: it counts for no booking, and `reason` says why.
    """

    uid: str
    outcome: ReportOutcome
    booking_id: str | None
    until: Time | None
    reason: str


class AdmissionsOut(Wire):
    """One result per pod, in the order of the request."""

    items: list[AdmissionOut]

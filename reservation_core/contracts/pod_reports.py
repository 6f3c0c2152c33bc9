"""Pod reports over REST: pods of other systems that use bookings."""

from typing import Annotated

from pydantic import Field, model_validator

from reservation_core.contracts.base import MAX_GPUS_PER_NODE, ExactUserName, GpuTypeName, Instant, Line, Time, Wire
from reservation_core.domain.pods.pod_reports import ReportOutcome

MOST_PODS = 500

BookingId = Annotated[str, Field(strict=True, pattern=r"^bkg-[0-9a-z]{1,32}$")]
PodText = Annotated[Line, Field(min_length=1, max_length=253)]


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

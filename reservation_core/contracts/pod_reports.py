"""The wire of admissions: pods of others that use bookings, as what watches a cluster reports them."""

from typing import Annotated

from pydantic import Field, model_validator

from reservation_core.contracts.base import MAX_GPUS_PER_NODE, ExactUserName, GpuTypeName, Line, Time, Wire
from reservation_core.contracts.bookings import Instant
from reservation_core.domain.pods.pod_reports import ReportOutcome

MOST_PODS = 500

BookingId = Annotated[str, Field(strict=True, pattern=r"^bkg-[0-9a-z]{1,32}$")]
PodText = Annotated[Line, Field(min_length=1, max_length=253)]


class PodSeen(Wire):
    """A pod of a user, as seen in a cluster. `gpus` are all of it; `since` when it began (left out: now).

    `booking_id` left out is whichever booking of theirs it fits. With `ended_at` it runs no more. `node` is where it
    is: said when it is first reported, its GPUs are known to be used there.
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
    def _hangs_together(self) -> "PodSeen":
        if self.since is not None and self.ended_at is not None and self.ended_at < self.since:
            raise ValueError("`ended_at` must not be before `since`")
        return self


class PodsSeen(Wire):
    """Pods that use GPUs and are none of this system's, as often as one likes: what is known changes nothing."""

    pods: Annotated[list[PodSeen], Field(min_length=1, max_length=MOST_PODS)]


class AdmissionOut(Wire):
    """What has come of one report.

    `outcome`: `recorded` it counts as use of `booking_id`, which ends `until`; `ended` it does no more; `unchanged`
    that was known; `no_booking` and `not_in_slot` it counts as nobody's use, and `reason` says why.
    """

    uid: str
    outcome: ReportOutcome
    booking_id: str | None
    until: Time | None
    reason: str


class AdmissionsOut(Wire):
    """One answer for each pod, in the order given."""

    items: list[AdmissionOut]

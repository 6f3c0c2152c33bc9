"""The admission webhook's settings."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from pod_scheduling.domain.extender.asked_cards import CardResources
from pod_scheduling.domain.extender.visible_cards import VisibleCardsRules
from pod_scheduling.domain.maps.map_injection import InjectionRules
from pod_scheduling.runtime.settings.admission import QualifiedName
from pod_scheduling.runtime.settings.enforcement import BookingEnforcement
from reservation_core.domain.pods.map_marks import SCHEDULER_NAME
from reservation_core.runtime.settings.components import CommonSettings
from reservation_core.runtime.settings.section import Seconds


class WebhookRules(BookingEnforcement):
    """Which pods the webhook looks at, and how it ends; beside, how bookings are enforced. Times are in seconds."""

    # The schedulerName that pods with a scheduling map get
    scheduler_name: Annotated[str, Field(min_length=1, max_length=253)] = SCHEDULER_NAME
    # Whether a variable that names other GPUs than the map is overwritten with a warning (CUDA_VISIBLE_DEVICES, and
    # NVIDIA_VISIBLE_DEVICES where bookings are enforced) instead of denied.
    override_devices: bool = False
    # The resource of shares of a GPU, for pods with the label gpu-dev/cards; the same as
    # GPU_DEV_ADMISSION__SHARE_RESOURCE.
    share_resource: QualifiedName = "tencent.com/vcuda-core"
    # How long the webhook still answers after SIGTERM, not ready, until API servers send it nothing more.
    drain_s: Annotated[float, Field(ge=0, le=600)] = 5
    certificate_look_s: Seconds = 1  # time between two looks for changed certificate files
    max_body_bytes: Annotated[int, Field(ge=64 * 1024, le=64 * 2**20)] = 3 * 2**20  # the largest review
    # The total size of reviews that are read at the same time, without the first 64 KiB of each. A review beyond it is
    # refused, to be sent again.
    max_bytes_in_flight: Annotated[int, Field(ge=64 * 1024, le=2**30)] = 24 * 2**20
    body_s: Annotated[float, Field(gt=0, le=300)] = 10  # how long a review may take to arrive

    @model_validator(mode="after")
    def _one_body_fits(self) -> Self:
        if self.max_bytes_in_flight < self.max_body_bytes:
            raise ValueError("max_bytes_in_flight must be as much as max_body_bytes at least")
        return self


class WebhookSettings(CommonSettings):
    """The admission webhook. For the map alone, of the common settings only GPU_DEV_GPU and the log's count."""

    webhook: WebhookRules = Field(default_factory=WebhookRules)

    @property
    def injection(self) -> InjectionRules:
        """What the map's part of the webhook goes by."""
        return InjectionRules(
            scheduler_name=self.webhook.scheduler_name,
            gpu_resources=self.gpu.resource_names,
            override_devices=self.webhook.override_devices,
        )

    @property
    def visible_cards(self) -> VisibleCardsRules:
        """What the part for pods with shares of cards goes by."""
        return VisibleCardsRules(
            CardResources(self.gpu.resource_names, self.webhook.share_resource),
            self.webhook.scheduler_name,
            self.webhook.override_devices,
        )

"""Who the admission webhook asks about a pod, with what each of them needs meanwhile."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from reservation_core.ports.reviewers import PodReviewer
from reservation_core.runtime.settings_webhook import WebhookSettings
from reservation_core.usecases.review_pod import MapReviewer


@asynccontextmanager
async def open_reviewers(settings: WebhookSettings) -> AsyncIterator[Sequence[PodReviewer]]:
    """The reviewers in the order in which they are asked: the map first, for others judge what it makes of the pod."""
    yield (MapReviewer(settings.injection),)

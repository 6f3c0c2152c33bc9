"""Reviewers of the admission webhook, with their background loops."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from pod_scheduling.domain.maps.remembered_maps import KnownMaps
from pod_scheduling.ports.reviewers import PodReviewer
from pod_scheduling.runtime.booking_reviews import EnforcementCounters, open_booking_reviewer
from pod_scheduling.runtime.settings.webhook import WebhookSettings
from pod_scheduling.usecases.maps.review_pod import MapReviewer, VisibleCardsReviewer
from reservation_core.runtime.loops.loops import Loops

MUTATE = "/mutate"
ENFORCE = "/enforce"


@asynccontextmanager
async def open_reviewers(
    settings: WebhookSettings, counters: EnforcementCounters, loops: Loops | None = None
) -> AsyncIterator[Mapping[str, Sequence[PodReviewer]]]:
    """The reviewers of each path, in the order in which they are asked: the map first, for others judge what it makes
    of the pod. Raises SettingsError."""
    maps = KnownMaps()
    by_map, by_label = MapReviewer(settings.injection, maps), VisibleCardsReviewer(settings.visible_cards)
    if not settings.webhook.enforce_bookings:
        yield {MUTATE: (by_map, by_label)}
        return
    own_cards = MapReviewer(replace(settings.injection, own_cards=True), maps)
    async with open_booking_reviewer(settings, counters, loops) as by_booking:
        yield {MUTATE: (by_map, by_label), ENFORCE: (own_cards, by_booking)}

"""The GPUs that a pod with a scheduling map sees, by its containers' environment."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reservation_core.adapters.kubernetes.api_server.plain_json import as_list, as_mapping
from reservation_core.domain.pods.cards_in_containers import node_devices
from reservation_core.domain.pods.map_marks import MAP_DIGEST, SCHEDULER_NAME
from reservation_core.domain.pods.reviews import annotations_of

_MOST_CARDS = 1024


@dataclass(frozen=True, slots=True)
class MappedCards:
    """A number of GPUs; `indices` is None unless all are named by index."""

    count: int
    indices: tuple[int, ...] | None


def mapped_cards(pod: Mapping[str, Any], scheduler_name: str = SCHEDULER_NAME) -> MappedCards | None:
    """The GPUs of all containers; None for a pod without a map or without GPUs.

    Scheduler name and environment of a pod are immutable; its annotations are not.
    """
    spec = as_mapping(pod.get("spec"))
    if spec.get("schedulerName") != scheduler_name and MAP_DIGEST not in annotations_of(pod):
        return None
    named: set[str] = set()
    unknown = False
    for kind in ("initContainers", "containers"):
        for container in map(as_mapping, as_list(spec.get(kind))):
            for devices in node_devices(container):
                unknown = unknown or devices is None
                named |= {word for part in (devices or "").split(",")[:_MOST_CARDS] if (word := part.strip())}
    if not named and not unknown:
        return None
    if unknown or not all(index.isascii() and index.isdigit() and len(index) <= 4 for index in named):
        return MappedCards(min(max(1, len(named)), _MOST_CARDS), None)
    indices = tuple(sorted({int(index) for index in named}))
    return MappedCards(len(indices), indices)

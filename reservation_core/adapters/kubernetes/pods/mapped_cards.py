"""The cards that a pod with a scheduling map sees, by what its containers were made with."""

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
    """So many cards; their `indices` where all are known by index, None where some are named by UUID or not told."""

    count: int
    indices: tuple[int, ...] | None


def mapped_cards(pod: Mapping[str, Any], scheduler_name: str = SCHEDULER_NAME) -> MappedCards | None:
    """The cards of all its containers together; None for a pod without a map, or one that sees none.

    The pod's scheduler and its containers' variables can't be changed any more; annotations can.
    """
    spec = as_mapping(pod.get("spec"))
    if spec.get("schedulerName") != scheduler_name and MAP_DIGEST not in annotations_of(pod):
        return None
    named: set[str] = set()
    untold = False
    for kind in ("initContainers", "containers"):
        for container in map(as_mapping, as_list(spec.get(kind))):
            for devices in node_devices(container):
                untold = untold or devices is None
                named |= {word for part in (devices or "").split(",")[:_MOST_CARDS] if (word := part.strip())}
    if not named and not untold:
        return None
    if untold or not all(index.isascii() and index.isdigit() and len(index) <= 4 for index in named):
        return MappedCards(min(max(1, len(named)), _MOST_CARDS), None)
    indices = tuple(sorted({int(index) for index in named}))
    return MappedCards(len(indices), indices)

"""Waiting pods from the watch: a scheduler's question about one of them need not be read again."""

from collections.abc import Mapping
from typing import Any

from pod_scheduling.domain.extender.cards_in_use import CardPod
from pod_scheduling.ports.card_cluster import CardPodSeen, CardSight
from reservation_core.adapters.kubernetes.api_server.plain_json import as_mapping


class WaitingPods:
    """All pods that wait."""

    def __init__(self) -> None:
        self._by_uid: dict[str, CardPodSeen] = {}

    def see(self, uid: str, sight: CardSight) -> None:
        """Take in what the watch says of a pod."""
        if isinstance(sight, CardPodSeen) and sight.node is None and sight.version:
            self._by_uid[uid] = sight
        else:
            self._by_uid.pop(uid, None)

    def known(self, thing: Mapping[str, Any]) -> CardPod | None:
        """The pod that a scheduler has sent, if it has the watched version."""
        metadata = as_mapping(thing.get("metadata"))
        uid = metadata.get("uid")
        seen = self._by_uid.get(uid) if isinstance(uid, str) else None
        return seen.pod if seen is not None and seen.version == metadata.get("resourceVersion") else None

"""What stood under an extender's names on pods that nobody had bound yet: their users' words, by which nobody goes."""

from collections.abc import Mapping
from typing import Any

from pod_scheduling.adapters.kubernetes.card_sights import marks_on
from pod_scheduling.ports.card_cluster import CardPodSeen, CardSight


class BroughtMarks:
    """Brought marks by pod, until it is gone. A pod that is on its node when it is seen first has brought none."""

    def __init__(self) -> None:
        self._by_uid: dict[str, Mapping[str, str]] = {}

    def of(self, uid: str) -> Mapping[str, str] | None:
        """Marks that a pod has brought."""
        return self._by_uid.get(uid)

    def see(self, uid: str, sight: CardSight, thing: Mapping[str, Any]) -> None:
        """Take in what the watch says of a pod."""
        if not isinstance(sight, CardPodSeen):
            self._by_uid.pop(uid, None)
        elif sight.node is None:
            marks = marks_on(thing)
            if marks:
                self._by_uid[uid] = marks
            else:
                self._by_uid.pop(uid, None)

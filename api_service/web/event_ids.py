"""The events that were seen. Ids are given before transactions commit, so a smaller id may appear later."""

from collections.abc import Collection, Iterable

PATIENCE_S = 60.0
"""How long to wait for a skipped id. No transaction takes longer; most of these were rolled back."""
MOST = 10_000
"""The most ids to wait for: a restored database skips many that were never used."""


class SeenIds:
    """`newest`: the greatest id seen. Times are in seconds of a monotonic clock."""

    def __init__(self, newest: int) -> None:
        self.newest = newest
        self._missing: dict[int, float] = {}

    @property
    def missing(self) -> Collection[int]:
        """Ids before the newest that may still appear."""
        return self._missing.keys()

    def saw(self, ids: Iterable[int], at: float) -> None:
        """Note ids, in order."""
        for event_id in ids:
            if event_id > self.newest:
                self._missing.update(dict.fromkeys(range(max(self.newest + 1, event_id - MOST), event_id), at))
                self.newest = event_id
            else:
                self._missing.pop(event_id, None)

    def give_up(self, at: float) -> None:
        """Forget ids that did not appear in time."""
        over = [event_id for event_id, since in self._missing.items() if at - since > PATIENCE_S]
        if len(self._missing) - len(over) > MOST:
            over = sorted(self._missing)[:-MOST]
        for event_id in over:
            del self._missing[event_id]

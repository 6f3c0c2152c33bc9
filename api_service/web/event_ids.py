"""Which events have been seen. Ids are given before transactions commit: a smaller one may come to be seen later."""

from collections.abc import Collection, Iterable

PATIENCE_S = 60.0
"""For so long an id that was passed over is looked for; no transaction takes longer. Most of these were rolled back."""
MOST = 10_000
"""More than these are not looked for: ids that were never used, after a database was restored."""


class SeenIds:
    """`newest`: the greatest id that was seen. Times are in seconds by any clock that only goes forward."""

    def __init__(self, newest: int) -> None:
        self.newest = newest
        self._missing: dict[int, float] = {}

    @property
    def missing(self) -> Collection[int]:
        """Ids before the newest that may yet come."""
        return self._missing.keys()

    def saw(self, ids: Iterable[int], at: float) -> None:
        """These have come, in order."""
        for event_id in ids:
            if event_id > self.newest:
                self._missing.update(dict.fromkeys(range(max(self.newest + 1, event_id - MOST), event_id), at))
                self.newest = event_id
            else:
                self._missing.pop(event_id, None)

    def give_up(self, at: float) -> None:
        """Look no more for what has not come in time."""
        over = [event_id for event_id, since in self._missing.items() if at - since > PATIENCE_S]
        if len(self._missing) - len(over) > MOST:
            over = sorted(self._missing)[:-MOST]
        for event_id in over:
            del self._missing[event_id]

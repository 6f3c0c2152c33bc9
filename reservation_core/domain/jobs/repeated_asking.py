"""Jobs whose pods' end is requested again: soon at first, then with doubled pauses."""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta

_LONGEST = timedelta(minutes=15)


@dataclass(slots=True)
class RepeatedEndRequests:
    """The requests made so far. A node that is silent for days does not get one every second.

    Long-running processes keep it in memory; a process that runs once asks for all.
    """

    patience: timedelta
    _tries: dict[str, tuple[datetime, timedelta]] = field(default_factory=dict)

    def due(self, stuck: Collection[str], now: datetime) -> list[str]:
        """Those of `stuck` whose turn it is; they count as asked. Others are forgotten."""
        for reservation_id in self._tries.keys() - set(stuck):
            del self._tries[reservation_id]
        due: list[str] = []
        for reservation_id in stuck:
            last = self._tries.get(reservation_id)
            if last is None:
                pause = self.patience
            elif now - last[0] >= last[1]:
                pause = min(2 * last[1], _LONGEST)
            else:
                continue
            self._tries[reservation_id] = (now, pause)
            due.append(reservation_id)
        return due

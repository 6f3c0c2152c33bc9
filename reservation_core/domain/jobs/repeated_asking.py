"""Jobs to ask again for the end of their pods: soon at first, then after twice the time at each try."""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta

_LONGEST = timedelta(minutes=15)


@dataclass(slots=True)
class AskedAgain:
    """What was asked again before. A node that is silent for days is not told every second what it did not hear.

    Kept in memory by who looks often; who looks once asks for all.
    """

    patience: timedelta
    _tries: dict[str, tuple[datetime, timedelta]] = field(default_factory=dict)

    def due(self, stuck: Collection[str], now: datetime) -> list[str]:
        """Those of `stuck` whose turn it is. They count as asked; who is not stuck any more is forgotten."""
        for reservation_id in self._tries.keys() - set(stuck):
            del self._tries[reservation_id]
        due = [
            reservation_id
            for reservation_id in stuck
            if reservation_id not in self._tries or self._is_due(reservation_id, now)
        ]
        for reservation_id in due:
            pause = (
                min(2 * self._tries[reservation_id][1], _LONGEST) if reservation_id in self._tries else self.patience
            )
            self._tries[reservation_id] = (now, pause)
        return due

    def _is_due(self, each: str, now: datetime) -> bool:
        at, pause = self._tries[each]
        return now - at >= pause

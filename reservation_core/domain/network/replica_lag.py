"""Whether a replica shows everything that its primary had a moment ago, and its lag."""

from collections import deque
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

CLOCKS_DIFFER = timedelta(seconds=1)
"""Replicas whose clock differs more are not used, since their answers may depend on it."""
_MOST_MARKS = 3600


@dataclass(frozen=True, slots=True)
class ServerProgress:
    """The progress of a database server at `at` (its own clock, UTC).

    `position` is a byte position of its log: flushed to disk on a primary, replayed on a replica. `system` and
    `timeline` identify the history.
    """

    follows: bool
    position: int | None
    system: int
    timeline: str
    at: datetime


class ReplicaStanding(StrEnum):
    """Whether a replica may be read."""

    WHOLE = "whole"
    """It shows everything that the primary had acknowledged."""
    BEHIND = "behind"
    """It will soon."""
    OTHER = "other"
    """It follows no primary (it was promoted, say) or another history, or its clock differs."""


def standing(replica: ServerProgress, primary: ServerProgress, elapsed: timedelta) -> ReplicaStanding:
    """Compare a replica with its primary, which was asked first; the replica answered `elapsed` after that."""
    if primary.follows or not replica.follows:
        return ReplicaStanding.OTHER
    if (replica.system, replica.timeline) != (primary.system, primary.timeline):
        return ReplicaStanding.OTHER
    if not primary.at - CLOCKS_DIFFER <= replica.at <= primary.at + elapsed + CLOCKS_DIFFER:
        return ReplicaStanding.OTHER
    if primary.position is None or replica.position is None:
        return ReplicaStanding.OTHER
    return ReplicaStanding.WHOLE if replica.position >= primary.position else ReplicaStanding.BEHIND


class ReplicationLag:
    """For how many seconds a replica has not shown what the primary had.

    Counted from when the primary was seen to have it, so that an idle primary causes no lag. Times are seconds of a
    monotonic clock.
    """

    def __init__(self) -> None:
        self._marks: deque[tuple[float, int]] = deque()
        self._shown = 0
        self._history: tuple[int, str] | None = None

    def note_primary(self, primary: ServerProgress, at: float) -> None:
        """Note the primary's position at `at`."""
        if (primary.system, primary.timeline) != self._history:
            # Positions of another history can't be compared.
            self._marks.clear()
            self._shown = 0
            self._history = (primary.system, primary.timeline)
        known = self._marks[-1][1] if self._marks else self._shown
        if primary.position is None or primary.position <= known:
            return
        # Of very many marks the oldest count: later ones are known to be behind as well.
        if len(self._marks) < _MOST_MARKS:
            self._marks.append((at, primary.position))

    def note_replica(self, position: int) -> None:
        """Note the replica's position, of the same history."""
        self._shown = max(self._shown, position)
        while self._marks and self._marks[0][1] <= position:
            self._marks.popleft()

    def seconds(self, now: float) -> float:
        """How long the oldest part that the replica does not show has existed."""
        return max(0.0, now - self._marks[0][0]) if self._marks else 0.0

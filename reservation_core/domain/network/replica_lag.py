"""Whether a replica shows all that its primary had a moment ago, so that who reads there misses nothing; its lag."""

from collections import deque
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

CLOCKS_DIFFER = timedelta(seconds=1)
"""What a replica answers may rest on its clock: one whose clock is further off is not asked."""
_MOST_MARKS = 3600


@dataclass(frozen=True, slots=True)
class ServerProgress:
    """How far a database server was at `at` (its own clock, UTC).

    `position` counts bytes of its log: for a server that writes, what is on its disk, which is all that was answered
    for; for one that follows, what it shows. `system` and `timeline` say of which history they are.
    """

    follows: bool
    position: int | None
    system: int
    timeline: str
    at: datetime


class ReplicaStanding(StrEnum):
    """What a replica is to somebody who wants to read there."""

    WHOLE = "whole"
    """It shows all that the primary had answered for."""
    BEHIND = "behind"
    """It will, a little later."""
    OTHER = "other"
    """It follows nobody (it was promoted, say), or follows another history, or its clock is off."""


def standing(replica: ServerProgress, primary: ServerProgress, elapsed: timedelta) -> ReplicaStanding:
    """What a replica is, when the primary was asked first and the replica answered `elapsed` after that question."""
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
    """For how many seconds a replica has not shown what the primary had, from looks at both.

    Counted from when the primary was seen to have it, so that a primary that writes nothing makes no lag. Times are
    seconds of any clock that nobody sets.
    """

    def __init__(self) -> None:
        self._marks: deque[tuple[float, int]] = deque()
        self._shown = 0
        self._history: tuple[int, str] | None = None

    def primary_seen(self, primary: ServerProgress, at: float) -> None:
        """The primary was so far at `at`."""
        if (primary.system, primary.timeline) != self._history:
            # Positions of another history say nothing.
            self._marks.clear()
            self._shown = 0
            self._history = (primary.system, primary.timeline)
        known = self._marks[-1][1] if self._marks else self._shown
        if primary.position is None or primary.position <= known:
            return
        # Of very many the oldest counts: what comes after it is known to be behind as well.
        if len(self._marks) < _MOST_MARKS:
            self._marks.append((at, primary.position))

    def replica_seen(self, position: int) -> None:
        """The replica, of the same history, shows what there is up to here."""
        self._shown = max(self._shown, position)
        while self._marks and self._marks[0][1] <= position:
            self._marks.popleft()

    def seconds(self, now: float) -> float:
        """How long the oldest of what it does not show has been there."""
        return max(0.0, now - self._marks[0][0]) if self._marks else 0.0

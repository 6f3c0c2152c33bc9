"""Which connections a server keeps: bounded in total and per address; idle ones make room for new ones.

Connections without a complete request head are strangers. When the server is full, a new connection displaces the
stranger that has been silent the longest, then the connection that has been idle the longest, so that nobody keeps
others out by opening connections and sending nothing. Connections with a request in progress are never closed.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Generic, Protocol, TypeVar

from reservation_core.domain.network.http_limits import Refusal

PATIENCE_S = 1.0
"""How long a connection must be idle before a new one displaces it: an honest client's head takes less."""

_SEARCHED = 64
"""How many connections are searched for one new connection."""


class OpenConnection(Protocol):
    """A connection. `used_at`: seconds of the server's clock at which it was accepted or last had a request."""

    used_at: float

    @property
    def busy(self) -> bool:
        """Whether a request is in progress."""


T = TypeVar("T", bound=OpenConnection)


@dataclass(frozen=True, slots=True)
class GrantedSlot(Generic[T]):
    """Room for a connection once `instead_of`, which no longer counts, is closed."""

    instead_of: T | None = None


class ConnectionSlots(Generic[T]):
    """At most `most` connections, and `most_of_one` per source. Times are seconds of a monotonic clock."""

    def __init__(self, most: int, most_of_one: int) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._sources: dict[T, str | None] = {}
        self._counts: dict[str, int] = {}
        # Connections with the time at which each was moved to the end; used ones are moved lazily, in `_idlest`.
        self._strangers: OrderedDict[T, float] = OrderedDict()
        self._known: OrderedDict[T, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sources)

    def __iter__(self) -> Iterator[T]:
        return iter(self._sources)

    def room(self, source: str | None, now: float) -> GrantedSlot[T] | Refusal:
        """Whether one more connection of a source fits; for source None only the total counts."""
        if source is not None and self._counts.get(source, 0) >= self._most_of_one:
            displaced = self._idlest(self._strangers, now, source) or self._idlest(self._known, now, source)
            refusal = Refusal.ADDRESS_FULL
        elif len(self._sources) >= self._most:
            displaced = self._idlest(self._strangers, now) or self._idlest(self._known, now)
            refusal = Refusal.SERVER_FULL
        else:
            return GrantedSlot()
        if displaced is None:
            return refusal
        self.leave(displaced)
        return GrantedSlot(displaced)

    def enter(self, occupant: T, source: str | None) -> None:
        """Add a connection of a source, as a stranger."""
        self._sources[occupant] = source
        self._strangers[occupant] = occupant.used_at
        if source is not None:
            self._counts[source] = self._counts.get(source, 0) + 1

    def know(self, occupant: T) -> None:
        """Note that a connection has sent its first complete head."""
        if self._strangers.pop(occupant, None) is not None:
            self._known[occupant] = occupant.used_at

    def leave(self, occupant: T) -> None:
        """Remove a connection; does nothing if it no longer counts."""
        if occupant not in self._sources:
            return
        source = self._sources.pop(occupant)
        self._strangers.pop(occupant, None)
        self._known.pop(occupant, None)
        if source is not None:
            self._counts[source] -= 1
            if not self._counts[source]:
                del self._counts[source]

    def _idlest(self, waiting: "OrderedDict[T, float]", now: float, source: str | None = None) -> T | None:
        """The connection, of one source if given, that has been idle the longest."""
        candidates = (occupant for occupant in waiting if source is None or self._sources[occupant] == source)
        for occupant in list(islice(candidates, _SEARCHED)):
            if occupant.busy or occupant.used_at > waiting[occupant]:
                waiting[occupant] = now if occupant.busy else occupant.used_at
                waiting.move_to_end(occupant)
            elif now - waiting[occupant] >= PATIENCE_S:
                return occupant
        return None

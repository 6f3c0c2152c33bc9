"""Which connections a server keeps: bounded in all and by address, and idle ones make room for new ones.

Clients that have not sent a complete request head yet are strangers. When the server is full, the stranger that has
been silent the longest is closed for the new connection, then the connection that has been idle the longest: so nobody
keeps others out by opening connections and saying nothing. Connections with a request under way are never closed.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Generic, Protocol, TypeVar

from reservation_core.domain.network.http_limits import Refusal

PATIENCE_S = 1.0
"""A connection is closed for a new one only after so many idle seconds: an honest client's head needs less."""

_LOOKS = 64
"""How many connections are looked at for one new connection."""


class OpenConnection(Protocol):
    """A connection. `used_at`: seconds of the server's clock at which it was accepted or last had a request."""

    used_at: float

    @property
    def busy(self) -> bool:
        """Whether a request is under way."""
        ...


T = TypeVar("T", bound=OpenConnection)


@dataclass(frozen=True, slots=True)
class GrantedSlot(Generic[T]):
    """There is room for a connection once `instead_of` is closed; it counts no more."""

    instead_of: T | None = None


class ConnectionSlots(Generic[T]):
    """At most `most` connections, and `most_of_one` of one source. Times are seconds of a monotonic clock."""

    def __init__(self, most: int, most_of_one: int) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._sources: dict[T, str | None] = {}
        self._counts: dict[str, int] = {}
        # The connections with the time at which each was put at the end; what was used since is moved when looked at.
        self._strangers: OrderedDict[T, float] = OrderedDict()
        self._known: OrderedDict[T, float] = OrderedDict()

    def __len__(self) -> int:
        """How many connections count."""
        return len(self._sources)

    def __iter__(self) -> Iterator[T]:
        """The connections that count."""
        return iter(self._sources)

    def room(self, source: str | None, now: float) -> GrantedSlot[T] | Refusal:
        """Whether one more of a source may come; a source None is bounded only by what all have."""
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
        """A connection of a source has come; it is a stranger's."""
        self._sources[occupant] = source
        self._strangers[occupant] = occupant.used_at
        if source is not None:
            self._counts[source] = self._counts.get(source, 0) + 1

    def know(self, occupant: T) -> None:
        """A connection has brought its first complete head."""
        if self._strangers.pop(occupant, None) is not None:
            self._known[occupant] = occupant.used_at

    def leave(self, occupant: T) -> None:
        """A connection is over; nothing happens when it counts no more."""
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
        """The connection that has been idle the longest, of one source where one is given."""
        candidates = (occupant for occupant in waiting if source is None or self._sources[occupant] == source)
        for occupant in list(islice(candidates, _LOOKS)):
            if occupant.busy or occupant.used_at > waiting[occupant]:
                waiting[occupant] = now if occupant.busy else occupant.used_at
                waiting.move_to_end(occupant)
            elif now - waiting[occupant] >= PATIENCE_S:
                return occupant
        return None

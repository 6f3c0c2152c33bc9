"""Maps that were read before: all pods of a set carry the same one, and a large one takes milliseconds to read."""

from collections import OrderedDict

from reservation_core.domain.scheduling_map import SchedulingMap, map_digest, parse_map

MOST_ENTRIES = 50_000
"""What is kept in all: about 20 MB."""


class KnownMaps:
    """The maps that were asked for last, by the digests of their texts; so many entries in all."""

    def __init__(self, most_entries: int = MOST_ENTRIES) -> None:
        self._most = most_entries
        self._entries = 0
        self._maps: OrderedDict[str, SchedulingMap] = OrderedDict()

    def read(self, text: str) -> SchedulingMap:
        """The map in an annotation, as `parse_map` reads it. Raises SchedulingMapError; what is wrong is not kept."""
        digest = map_digest(text)
        known = self._maps.get(digest)
        if known is not None:
            self._maps.move_to_end(digest)
            return known
        found = parse_map(text)
        self._maps[digest] = found
        self._entries += len(found.entries)
        while self._entries > self._most and len(self._maps) > 1:
            _, oldest = self._maps.popitem(last=False)
            self._entries -= len(oldest.entries)
        return found

"""A cache of parsed maps: all pods of a set carry the same one, and a large one takes milliseconds to parse."""

from collections import OrderedDict

from pod_scheduling.domain.maps.scheduling_map import SchedulingMap, map_digest, parse_map

MOST_WEIGHT = 50_000
"""The bound of all kept maps, in entries and devices of entries: about 15 MB."""


class KnownMaps:
    """The maps that were asked for last, by the digests of their texts; so many entries and devices in all."""

    def __init__(self, most: int = MOST_WEIGHT) -> None:
        self._most = most
        self._weight = 0
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
        self._weight += _weight(found)
        while self._weight > self._most and len(self._maps) > 1:
            _, oldest = self._maps.popitem(last=False)
            self._weight -= _weight(oldest)
        return found


def _weight(found: SchedulingMap) -> int:
    return sum(1 + len(entry.devices) for entry in found.entries.values())

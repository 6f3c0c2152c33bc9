"""Which jobs with a slot may find an earlier one: the walk gives these alone to the search for slots."""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heapreplace

from reservation_core.domain.plan import Waiting
from reservation_core.domain.planning.making_room import may_have_room, room_length
from reservation_core.domain.planning.planning_picture import Picture
from reservation_core.domain.planning.waiting_queue import Entry, Order, ShapeQueue
from reservation_core.domain.planning.walking.slot_walk import LEAST, Passed
from reservation_core.domain.pools.freed_time import EarlierPlaces

_MOST = 64
"""How many jobs of a shape are passed over at once in the end."""

_Known = tuple[EarlierPlaces, int]
"""Where jobs of a shape may find earlier places, and the least length of those to which no room is given."""


def improvable(picture: Picture, queues: list[ShapeQueue], enough: Callable[[], bool]) -> Iterator[Entry]:
    """Those of the jobs with a slot that may find an earlier one, or for which others may make room.

    Another one, before which the walk pauses, when there is no time to go on.
    """
    hopes = _Hopes(picture, enough)
    walk, version = picture.walk, hopes.version
    known = [walk.go_on_in(queue, version) for queue in queues]
    walked = [queue_passed.walked for queue_passed in known]  # behind the last job that was looked at in its turn
    passed = [queue_passed.upcoming for queue_passed in known]  # the next job to be looked at
    heap = _in_order(queues, passed, [queue_passed.at_once for queue_passed in known])
    has_looked = False
    while heap:
        place, number, index, at_once = heap[0]
        queue = queues[number]
        entry = queue.entries[index]
        hopeful, after = None, index
        if not (has_looked and enough()) and hopes.look(queue, entry[1]):
            after = hopes.pass_over(queue, index, at_once)
            hopeful = after == index and hopes.has(queue, entry)
        if hopeful:
            yield entry
            if hopes.note_decision():
                behind = ((*place[:3], place[3] + 1),)
                walked[number] = passed[number] = index + 1
                walked = [
                    bisect_left(queue.entries, behind, lo, hi)
                    for queue, lo, hi in zip(queues, walked, passed, strict=True)
                ]
                passed, version = walked[:], hopes.version
                heap = _in_order(queues, walked, [LEAST] * len(queues))
                continue
        elif hopeful is None:
            walk.pause(entry)
            yield entry
            return
        has_looked = not hopeful
        walked[number] = index + 1
        index = passed[number] = hopes.pass_over(queue, index + 1, at_once) if after == index else after
        at_once = min(2 * at_once, _MOST)
        walk.passed[queue] = Passed(version + queue.changes, walked[number], index, at_once)
        if index < len(queue.entries):
            heapreplace(heap, (queue.entries[index][0], number, index, at_once))
        else:
            heappop(heap)


def _in_order(queues: list[ShapeQueue], firsts: list[int], at_once: list[int]) -> list[tuple[Order, int, int, int]]:
    """The next entry of each queue, as a heap: its place, its queue's number, its index, how many follow at once."""
    heap = [
        (queue.entries[index][0], number, index, many)
        for number, (queue, index, many) in enumerate(zip(queues, firsts, at_once, strict=True))
        if index < len(queue.entries)
    ]
    heapify(heap)
    return heap


class _Hopes:
    """Knows shapes until something is decided; not those of which there was no time to read all."""

    def __init__(self, picture: Picture, enough: Callable[[], bool]) -> None:
        self._picture = picture
        self._slots = picture.ledger.slots
        self._enough = enough
        self.version = picture.pools.version + picture.walk.changes
        self._known: dict[ShapeQueue, _Known] = {}

    def has(self, queue: ShapeQueue, entry: Entry) -> bool | None:
        """Whether a job in a queue that was read may have an earlier slot: no only if not, None if there is no time."""
        _, job, length = entry
        picture = self._picture
        at = picture.at
        start, _ = self._slots.get(job.id, (at, at))
        if start <= at:
            return False
        places, too_long = self._known[queue]
        may_begin = places.may_begin(job.id, length, start, at)
        if may_begin is None:  # a place was taken, and others may be left
            if not places.read(at, self._enough):
                return None
            may_begin = places.may_begin(job.id, length, start, at) is not False  # the search knows it for certain
        return may_begin or picture.has_freed_quota(job) or (length < too_long and may_have_room(picture, job))

    def pass_over(self, queue: ShapeQueue, first: int, at_once: int) -> int:
        """The index of the next job in a queue that may have an earlier slot at a quick look, or of one before it."""
        places, too_long = self._known[queue]
        stairs = None if self._picture.pools.freed_quotas else places.stairs()
        if stairs is None:
            return first
        entries, slots = queue.entries, self._slots
        none = self._picture.at, 0
        last = min(first + at_once, len(entries))
        for index in range(first, last):
            _, job, length = entries[index]
            if length < too_long:
                return index
            job_id = job.id
            start, _ = slots.get(job_id, none)
            for lengths, starts, beside in stairs:
                if starts[bisect_left(lengths, length)] < start or job_id in beside:
                    return index
        return last

    def look(self, queue: ShapeQueue, job: Waiting) -> bool:
        """Read what is known of a job's queue anew if anything has changed; false if there is no time to read all."""
        if queue in self._known:
            return True
        picture = self._picture
        pools, walk = picture.pools, picture.walk
        places = pools.earlier_places(queue.gpu_type, queue.shape)
        version, too_long = walk.looked.get(places, (-1, 0))
        if version != places.version + walk.changes:
            if not places.read(picture.at, self._enough):
                return False
            too_long = room_length(picture, job)
            walk.looked[places] = places.version + walk.changes, too_long
        self._known[queue] = places, too_long
        return True

    def note_decision(self) -> bool:
        """Note that something may have been decided; whether that changes what is known."""
        version = self._picture.pools.version + self._picture.walk.changes
        is_changed = version != self.version
        if is_changed:
            self.version = version
            self._known.clear()
        return is_changed

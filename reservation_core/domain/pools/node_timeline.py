"""When the GPUs of one node are free, as one timeline for all of them.

From each of `times` until the next, exactly the GPUs in the mask beside it are free; the last lasts for ever. So the
question whether enough GPUs are free together needs only few small ints.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from reservation_core.domain.calendar import FOREVER, OVERRUN, GpuCalendar, Range, Row
from reservation_core.domain.cards.card_links import GpuSets
from reservation_core.domain.cards.card_masks import pick_gpus
from reservation_core.domain.pools.pool import PoolGpu


class Timeline:
    """Begins at its `now`, and is valid as long as no row of its GPUs begins, ends, is added or removed."""

    __slots__ = ("masks", "times")

    def __init__(self, gpus: Iterable[PoolGpu], now: int, without: str | None = None) -> None:
        """Read the calendars of these GPUs, `without` the rows of one reservation."""
        changes: dict[int, int] = {}
        mask = 0
        for gpu in gpus:
            rows: list[Row] = gpu.calendar.rows
            bit = gpu.bit
            mask |= bit
            if without is not None:
                rows = [row for row in rows if row[3] != without]
            for start, end in _busy(rows, now) if rows else ():
                if start <= now:
                    mask ^= bit
                else:
                    changes[start] = changes.get(start, 0) ^ bit
                changes[end] = changes.get(end, 0) ^ bit
        self.times = [now]
        self.masks = [mask]
        for at in sorted(changes):
            change = changes[at]
            if change:
                mask ^= change
                self.times.append(at)
                self.masks.append(mask)

    def first_free(self, gpus: int) -> int:
        """The first time at which so many GPUs are free, for however long; `FOREVER` if the node has fewer."""
        for at, mask in zip(self.times, self.masks, strict=True):
            if mask.bit_count() >= gpus:
                return at
        return FOREVER

    def windows(self, gpus: int) -> list[Range]:
        """Ranges that contain, for every length, the first one in which `gpus` GPUs are free together.

        In order of start and of end, and of length but for the first, which may have begun before `now`. The last never
        ends; there is none if the node has fewer GPUs.
        """
        times, masks = self.times, self.masks
        windows: list[Range] = []
        before = longest = latest = blocked = 0
        for after, mask in enumerate(masks, 1):
            # The earliest start of any request is when a GPU becomes free. Where too few are free at the end of a
            # window, all windows that begin in it end there, too.
            if mask & ~before and after > blocked and mask.bit_count() >= gpus:
                start = times[after - 1]
                end = FOREVER
                free = mask
                at = after
                for following in masks[after:]:
                    left = free & following
                    if left != free:
                        if left.bit_count() < gpus:
                            end = times[at]
                            if following.bit_count() < gpus:
                                blocked = at
                            break
                        free = left
                    at += 1
                if end - start > longest and end > latest:
                    windows.append((start, end))
                    if end == FOREVER:
                        break
                    latest = end
                    if after > 1:
                        longest = end - start
            before = mask
        return windows

    def first_window(self, gpus: int, length: int, at: int) -> Range | None:
        """The first start from `at` on at which `gpus` GPUs are free for `length`, and a lower bound of the last one.

        None if the node has fewer GPUs.
        """
        times, masks = self.times, self.masks
        first = max(0, bisect_right(times, at) - 1)
        for index in range(first, len(times)):
            mask = masks[index]
            if mask.bit_count() >= gpus:
                start = max(at, times[index])
                end = FOREVER
                for after in range(index + 1, len(masks)):  # as in `windows`: a call for both costs more
                    left = mask & masks[after]
                    if left != mask:
                        if left.bit_count() < gpus:
                            end = times[after]
                            break
                        mask = left
                if end - start >= length:
                    return start, end - length
        return None

    def free_during(self, start: int, end: int) -> int:
        """The mask of the GPUs that are free during all of [start, end)."""
        first = max(0, bisect_right(self.times, start) - 1)
        free = self.masks[first]
        for mask in self.masks[first + 1 : bisect_left(self.times, end)]:
            free &= mask
        return free

    def free_just_before(self, at: int) -> int:
        """How many GPUs are free just before a time, which is later than the beginning."""
        return self.masks[bisect_left(self.times, at) - 1].bit_count()

    def cut(self, mask: int, start: int, end: int) -> None:
        """Mark these GPUs as taken for [start, end)."""
        masks = self.masks
        first, last = self._edge(start), self._edge(end)
        for index in range(first, last):
            masks[index] &= ~mask
        self._drop_unchanged(first, last)

    def copy(self) -> "Timeline":
        """The same, to be changed."""
        copy = Timeline.__new__(Timeline)
        copy.times, copy.masks = self.times[:], self.masks[:]
        return copy

    def give_back(self, mask: int, start: int, end: int) -> None:
        """Mark these GPUs, which one row has, as free in [start, end)."""
        if end > self.times[0]:
            first, last = self._edge(max(start, self.times[0])), self._edge(end)
            for index in range(first, last):
                self.masks[index] |= mask
            self._drop_unchanged(first, last)

    def _drop_unchanged(self, first: int, last: int) -> None:
        """Drop those of these two times at which nothing changes."""
        for index in (last, first):
            if index and self.masks[index] == self.masks[index - 1]:
                del self.masks[index], self.times[index]

    def _edge(self, at: int) -> int:
        """The index of a time, which is inserted if missing."""
        index = bisect_left(self.times, at)
        if index == len(self.times) or self.times[index] != at:
            self.times.insert(index, at)
            self.masks.insert(index, self.masks[index - 1])
        return index

    def pick(self, gpus: int, start: int, end: int, sets: GpuSets | None = None) -> int:
        """Choose GPUs for [start, end), as a mask: those whose remaining free time is of least use to others.

        First those that are not free for long afterwards, then those that have not been free for long before. With
        `sets`, the best-linked set, and of equal ones that with most of these GPUs.
        """
        times, masks = self.times, self.masks
        first = max(0, bisect_right(times, start) - 1)
        last = bisect_left(times, end)
        able = masks[first]
        for mask in masks[first + 1 : last]:
            able &= mask
        if able.bit_count() == gpus:
            return able
        free = able
        picked = 0
        for mask in (*masks[last:], *reversed(masks[:first])):
            wanted = gpus - picked.bit_count()
            if able.bit_count() <= wanted:
                break
            leaving = able & ~mask
            if leaving:
                if leaving.bit_count() <= wanted:
                    picked |= leaving
                    able ^= leaving
                else:
                    able = leaving
        picked |= pick_gpus(able, gpus - picked.bit_count())
        return picked if sets is None else sets.pick(free, gpus, picked)


def _busy(rows: list[Row], now: int) -> list[Range]:
    """The same as `GpuCalendar.busy`, faster for rows in order without overlap, as nearly all are."""
    busy: list[Range] = []
    latest = -FOREVER
    for row in rows:
        start, end, held, _ = row
        if held:
            start, end = min(start, now), end if end > now else now + OVERRUN
        elif end <= now:
            continue
        if start < latest:
            return GpuCalendar(rows).busy(now)
        busy.append((start, end))
        latest = end
    return busy

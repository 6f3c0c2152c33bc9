"""When the cards of one node are free, as one line of time for all of them.

From each of `times` until the next, exactly the cards in the mask beside it are free; the last lasts for ever. So that
enough cards are free together is a question to few small ints, however it came about.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from reservation_core.domain.calendar import FOREVER, OVERRUN, GpuCalendar, Range, Row
from reservation_core.domain.cards.card_links import CardSets
from reservation_core.domain.cards.card_masks import pick_cards
from reservation_core.domain.pools.pool import PoolCard


class Timeline:
    """Begins at the `now` it was made for, and holds as long as no row of its cards begins, ends, comes or goes."""

    __slots__ = ("masks", "times")

    def __init__(self, cards: Iterable[PoolCard], now: int, without: str | None = None) -> None:
        """From the calendars of these cards; `without` the rows of one reservation, as if it were not there."""
        changes: dict[int, int] = {}
        mask = 0
        for card in cards:
            rows: list[Row] = card.calendar.rows
            bit = card.bit
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

    def windows(self, gpus: int) -> list[Range]:
        """For every length, the first range in which `gpus` cards are free together for so long is among these.

        In order of start and of end, and of length but for the first, which may have begun before it is asked for. The
        last never ends; there is none when there are fewer cards.
        """
        times, masks = self.times, self.masks
        found: list[Range] = []
        before = longest = latest = 0
        count = len(masks)
        for index, mask in enumerate(masks):
            # The earliest start of anything is at a time at which a card becomes free.
            if mask & ~before and mask.bit_count() >= gpus:
                start = times[index]
                end = FOREVER
                free = mask
                for after in range(index + 1, count):  # as in `_until`, without a call
                    left = free & masks[after]
                    if left != free:
                        if left.bit_count() < gpus:
                            end = times[after]
                            break
                        free = left
                if end - start > longest and end > latest:
                    found.append((start, end))
                    if end == FOREVER:
                        break
                    latest = end
                    if index:
                        longest = end - start
            before = mask
        return found

    def _until(self, free: int, gpus: int, index: int) -> int:
        """Until when `gpus` of these cards are free together, from the time at `index` on."""
        masks = self.masks
        for after in range(index + 1, len(masks)):
            left = free & masks[after]
            if left != free:
                if left.bit_count() < gpus:
                    return self.times[after]
                free = left
        return FOREVER

    def first_window(self, gpus: int, length: int, at: int) -> Range | None:
        """The first start from `at` on at which `gpus` cards are free for `length`, and until when it can begin.

        None when there are not so many cards. The end is a bound: it may be that one can begin later still.
        """
        times, masks = self.times, self.masks
        first = max(0, bisect_right(times, at) - 1)
        for index in range(first, len(times)):
            mask = masks[index]
            if mask.bit_count() >= gpus:
                start = max(at, times[index])
                end = self._until(mask, gpus, index)
                if end - start >= length:
                    return start, end - length
        return None

    def cut(self, mask: int, start: int, end: int) -> None:
        """These cards are taken for [start, end)."""
        masks = self.masks
        first, last = self._edge(start), self._edge(end)
        for index in range(first, last):
            masks[index] &= ~mask
        # A time at which nothing changes any more would only be looked at in vain.
        for index in (last, first):
            if index and masks[index] == masks[index - 1]:
                del masks[index], self.times[index]

    def _edge(self, at: int) -> int:
        """The index of a time, which is put in if it is not there."""
        index = bisect_left(self.times, at)
        if index == len(self.times) or self.times[index] != at:
            self.times.insert(index, at)
            self.masks.insert(index, self.masks[index - 1])
        return index

    def pick(self, gpus: int, start: int, end: int, sets: CardSets | None = None) -> int:
        """Which cards to take for [start, end), as a mask: those of least use to others, by what is left of their time.

        First those that are not free for long afterwards, then those that have not been free for long before. With
        `sets`, those that are joined best, and of sets that are joined alike the one with most of these cards.
        """
        times, masks = self.times, self.masks
        first = max(0, bisect_right(times, start) - 1)
        last = bisect_left(times, end)
        able = masks[first]
        for index in range(first + 1, last):
            able &= masks[index]
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
        picked |= pick_cards(able, gpus - picked.bit_count())
        return picked if sets is None else sets.pick(free, gpus, picked)


def _busy(rows: list[Row], now: int) -> list[Range]:
    """What `GpuCalendar.busy` says; quicker where the rows are in order and don't overlap, as nearly all do."""
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

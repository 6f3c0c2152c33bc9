"""Whether any GPUs fit a request, for thousands of questions about one calendar.

`card_choice.choose` says which GPUs; this only says whether any exist. Times are ints as in `calendar`.
"""

from collections.abc import Collection, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from reservation_core.domain.bookings.card_choice import BookableGpu, with_booked
from reservation_core.domain.bookings.nouns import ChosenGpu, Wanted
from reservation_core.domain.calendar import Range


class FreeGpus:
    """An immutable snapshot of the calendar."""

    def __init__(self, gpus: Sequence[BookableGpu]) -> None:
        self.cards = list(gpus)
        self._position = {gpu.gpu_id: at for at, gpu in enumerate(self.cards)}
        # A group is the GPUs of one type on one node: what a request takes of a node is from one group.
        groups = sorted({(gpu.gpu_type, gpu.node) for gpu in self.cards})
        number = {group: at for at, group in enumerate(groups)}
        types = sorted({gpu_type for gpu_type, _ in groups})
        self._groups = groups
        self._type_of_group = np.array([types.index(gpu_type) for gpu_type, _ in groups], dtype=np.intp)
        self._group = np.array([number[gpu.gpu_type, gpu.node] for gpu in self.cards], dtype=np.intp)
        self._available = np.array([gpu.available for gpu in self.cards], dtype=np.bool_)
        busy = [(start, end, at) for at, gpu in enumerate(self.cards) for start, end in gpu.busy]
        table = np.array(busy, dtype=np.int64).reshape(-1, 3)
        self._starts, self._ends, self._of = table[:, 0], table[:, 1], table[:, 2]

    def free_for(self, start: int, end: int) -> list[BookableGpu]:
        """The GPUs that are free for all of [start, end)."""
        return [self.cards[at] for at in np.flatnonzero(self._free(start, end))]

    def could_serve(self, wanted: Wanted, start: int, end: int) -> bool:
        """Whether `choose` would return GPUs."""
        counts = np.bincount(self._group[self._free(start, end)], minlength=len(self._groups))
        able = np.flatnonzero(counts >= wanted.gpus)
        if wanted.gpu_type is not None or wanted.node is not None:
            able = np.array(
                [
                    at
                    for at in able
                    if wanted.gpu_type in (None, self._groups[at][0]) and wanted.node in (None, self._groups[at][1])
                ],
                dtype=np.intp,
            )
        if not able.size:
            return False
        return bool(np.bincount(self._type_of_group[able]).max() >= wanted.nodes)

    def booked(self, chosen: Collection[ChosenGpu], start: int, end: int) -> "FreeGpus":
        """The calendar with `chosen` booked for [start, end)."""
        after = object.__new__(FreeGpus)
        after._position, after._groups, after._type_of_group = self._position, self._groups, self._type_of_group
        after._group, after._available = self._group, self._available
        positions = [self._position[gpu.gpu_id] for gpu in chosen]
        after.cards = list(self.cards)
        for at, gpu in zip(
            positions, with_booked([self.cards[at] for at in positions], chosen, start, end), strict=True
        ):
            after.cards[at] = gpu
        after._starts = np.append(self._starts, np.full(len(positions), start))
        after._ends = np.append(self._ends, np.full(len(positions), end))
        after._of = np.append(self._of, positions)
        return after

    def _free(self, start: int, end: int) -> NDArray[np.bool_]:
        free = self._available.copy()
        free[self._of[(self._starts < end) & (self._ends > start)]] = False
        return free


class FreedTimes:
    """The times, by type and node, that became free between two snapshots of the calendar."""

    def __init__(self, before: Iterable[BookableGpu], after: Iterable[BookableGpu]) -> None:
        known = {gpu.gpu_id: gpu for gpu in before}
        self._times: dict[tuple[str, str], set[Range]] = {}
        for gpu in after:
            former = known.get(gpu.gpu_id)
            if former == gpu or not gpu.available:
                continue
            times = {_ALWAYS} if former is None or not _same(former, gpu) else _without(former.busy, gpu.busy)
            if times:
                self._times.setdefault((gpu.gpu_type, gpu.node), set()).update(times)

    def __bool__(self) -> bool:
        return bool(self._times)

    def concerns(self, wanted: Wanted, start: int, end: int) -> bool:
        """Whether a freed time overlaps [start, end) on GPUs that fit the request."""
        return any(
            begin < end and start < until
            for (gpu_type, node), times in self._times.items()
            if wanted.gpu_type in (None, gpu_type) and wanted.node in (None, node)
            for begin, until in times
        )


_ALWAYS: Range = (-(2**62), 2**62)


def _same(former: BookableGpu, gpu: BookableGpu) -> bool:
    """Whether it is the same GPU as before, and was available then."""
    return former.available and (former.gpu_type, former.node) == (gpu.gpu_type, gpu.node)


def _without(before: Iterable[Range], after: Sequence[Range]) -> set[Range]:
    """The parts of `before` that are not in `after`; both in order and without overlaps."""
    parts: set[Range] = set()
    for start, end in before:
        at = start
        for busy_start, busy_end in after:
            if busy_end <= at:
                continue
            if busy_start >= end:
                break
            if busy_start > at:
                parts.add((at, busy_start))
            at = max(at, busy_end)
        if at < end:
            parts.add((at, end))
    return parts

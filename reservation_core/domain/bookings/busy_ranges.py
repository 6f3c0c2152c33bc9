"""Busy ranges as arrays: of thousands of ranges that are only counted, none costs an object.

Times are ints as in `calendar`.
"""

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

from reservation_core.domain.calendar import Range


class BusyRanges(Sequence[Range]):
    """Ranges in order of start. `begins` and `ends` are their bounds, in an order that the two share."""

    __slots__ = ("_in_order", "begins", "ends")

    def __init__(self, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        self.begins = begins
        self.ends = ends
        self._in_order: tuple[Range, ...] | None = None

    @classmethod
    def of(cls, ranges: Sequence[Range]) -> "BusyRanges":
        """The same ranges."""
        if isinstance(ranges, BusyRanges):
            return ranges
        table = np.array(ranges, dtype=np.int64).reshape(-1, 2)
        return cls(table[:, 0], table[:, 1])

    def __len__(self) -> int:
        return len(self.begins)

    def __iter__(self) -> Iterator[Range]:
        return iter(self._tuples())

    @overload
    def __getitem__(self, index: int) -> Range: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Range, ...]: ...

    def __getitem__(self, index: int | slice) -> Range | tuple[Range, ...]:
        return self._tuples()[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._tuples() == tuple(other)

    def __hash__(self) -> int:
        return hash(self._tuples())

    def _tuples(self) -> tuple[Range, ...]:
        if self._in_order is None:
            self._in_order = tuple(sorted(zip(self.begins.tolist(), self.ends.tolist(), strict=True)))
        return self._in_order

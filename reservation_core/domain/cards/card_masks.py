"""Sets of GPUs on one node as bit masks."""

from collections.abc import Iterator
from functools import lru_cache


def bits(mask: int) -> Iterator[int]:
    """The single bits of a mask, lowest first."""
    while mask:
        low = mask & -mask
        yield low
        mask ^= low


@lru_cache(maxsize=65_536)
def pick_gpus(free: int, gpus: int) -> int:
    """Pick `gpus` of the `free` GPUs (bit masks): neighbours if possible, from the shortest run that is long enough.

    Without such a run the longest runs come first, so that the set has as few pieces as possible.
    """
    runs: list[tuple[int, int]] = []  # (length, lowest bit's number)
    position = 0
    rest = free
    while rest:
        skip = (rest & -rest).bit_length() - 1
        rest >>= skip
        position += skip
        length = (~rest & (rest + 1)).bit_length() - 1
        runs.append((length, position))
        rest >>= length
        position += length
    fitting = [run for run in runs if run[0] >= gpus]
    if fitting:
        return ((1 << gpus) - 1) << min(fitting)[1]
    picked = 0
    for length, first in sorted(runs, key=lambda run: (-run[0], run[1])):
        taken = min(length, gpus)
        picked |= ((1 << taken) - 1) << first
        gpus -= taken
        if not gpus:
            break
    return picked

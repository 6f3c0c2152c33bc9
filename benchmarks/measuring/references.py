"""What absolute figures are held against: work of a fixed size, measured in the same run on the same machine.

Machines differ by a factor of three, and milliseconds and megabytes with them; ratios to these differ little.
"""

import time
from collections.abc import Callable, Sequence
from statistics import median

from benchmarks.measuring.figures import Figure

LOOP = "a fixed Python loop"
_REPEATS = 5
_TURNS = 100_000
_KEYS = 65_537


def loop_ms(clock: Callable[[], float] = time.perf_counter) -> float:
    """Milliseconds of a fixed pure-Python loop, the median of five: integers, a large dictionary, a sort.

    Not the fastest of them: another process that takes time from what is measured takes it from this as well. `clock`
    is the one by which that is measured: what is told in processor time is held against the loop's.
    """
    return median(_loop(clock) for _ in range(_REPEATS)) * 1000


def _loop(clock: Callable[[], float]) -> float:
    began = clock()
    sums: dict[int, int] = {}
    for number in range(_TURNS):
        key = number * 7919 % _KEYS
        sums[key] = sums.get(key, 0) + number
    ordered = sorted(sums, key=sums.__getitem__)
    total = 0
    for key in ordered:
        total += sums[key] & 1023
    return clock() - began


def against(
    name: str,
    measured: Sequence[float],
    references: Sequence[float],
    target: float,
    *,
    unit: str,
    of: str,
    at_least: bool = False,
    detail: str = "",
) -> Figure:
    """A figure in multiples of a reference, `of` by name, that was measured beside each of its rounds.

    Both are in `unit`; what was measured is told beside the ratio.
    """
    ratios = [value / reference for value, reference in zip(measured, references, strict=True)]
    told = f"{median(measured):.3g}{unit} against {median(references):.3g}{unit}"
    return Figure(
        f"{name} ÷ {of}", "x", ratios, target, at_least=at_least, detail=f"{told}; {detail}" if detail else told
    )

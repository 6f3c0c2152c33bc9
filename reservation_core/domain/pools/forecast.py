"""The estimated starts of waiting jobs: by their slot, else at their earliest fit in queue order.

The forecast for jobs without a slot (new ones, or far behind) is conservative: it reserves a place for each after those
before it, and lets no job pass. The real queue is at least as fast for the first, unless a job runs longer than
expected or a new one goes first; the end of an overrunning pod is a guess. Of jobs without a slot, GPUs alone count:
what they ask for of CPUs and memory may make them later.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush

from reservation_core.domain.calendar import (
    FOREVER,
    Range,
    earliest_start,
    is_free_during,
    length_micros,
    merge,
    node_windows,
    to_moment,
)
from reservation_core.domain.model import Reason
from reservation_core.domain.plan import WaitEstimate, Waiting
from reservation_core.domain.pools.pool import Pool
from reservation_core.domain.pools.reach import Reach
from reservation_core.domain.pools.waiting_reasons import Capacity, behind_in_line, waiting_for_gpus
from reservation_core.domain.request_terms import Share

_CACHE_SIZE = 64


class PoolForecast:
    """The calendar of one pool from `now` on, with the places reserved so far."""

    def __init__(self, pool: Pool, now: int) -> None:
        self.gpu_type = pool.gpu_type
        self._now = now
        self._busy: list[list[list[Range]]] = [[gpu.calendar.busy(now) for gpu in node.cards] for node in pool.nodes]
        # For each number of GPUs: (a lower bound of the earliest start, node position).
        self._bounds: dict[int, list[tuple[int, int]]] = {}
        self._windows: dict[tuple[int, int], list[list[Range] | None]] = {}

    def earliest(self, gpus: int, nodes: int, length: int, never: int = 0) -> tuple[int, list[int]] | None:
        """The earliest start of such a job, and the positions of its nodes; None when there is none.

        Nodes in the mask `never` are not used.
        """
        if nodes == 1:
            return self._earliest_on_one_node(gpus, length, never)
        key = (gpus, length)
        known = self._windows.get(key)
        if known is None:
            if len(self._windows) >= _CACHE_SIZE:
                del self._windows[next(iter(self._windows))]
            known = self._windows[key] = [None] * len(self._busy)
        windows = [
            windows if windows is not None else node_windows(self._busy[position], gpus, length, self._now)
            for position, windows in enumerate(known)
        ]
        known[:] = windows
        if never:
            windows = [[] if never >> position & 1 else window for position, window in enumerate(windows)]
        start = earliest_start(windows, nodes, self._now)
        if start is None:
            return None
        able = [p for p, window in enumerate(windows) if any(first <= start <= last for first, last in window)]
        return start, able[:nodes]

    def _earliest_on_one_node(self, gpus: int, length: int, never: int) -> tuple[int, list[int]] | None:
        bounds = self._bounds.get(gpus)
        if bounds is None:
            bounds = self._bounds[gpus] = [
                (bound, position)
                for position in range(len(self._busy))
                if (bound := self._bound(position, gpus)) < FOREVER
            ]
            heapify(bounds)
        best: tuple[int, int] | None = None
        tried: list[tuple[int, int]] = []
        # A bound only grows as places are reserved, so an old one is still a lower bound.
        while bounds and (best is None or bounds[0] < best):
            bound, position = heappop(bounds)
            actual = self._bound(position, gpus)
            if actual > bound:
                heappush(bounds, (actual, position))
                continue
            tried.append((bound, position))
            if never >> position & 1:
                continue
            start = node_windows(self._busy[position], gpus, length, self._now)[0][0]
            if best is None or (start, position) < best:
                best = (start, position)
        for entry in tried:
            heappush(bounds, entry)
        return None if best is None else (best[0], [best[1]])

    def _bound(self, position: int, gpus: int) -> int:
        windows = node_windows(self._busy[position], gpus, 1, self._now)
        return windows[0][0] if windows else FOREVER

    def reserve(self, start: int, length: int, gpus: int, positions: list[int]) -> None:
        """Reserve `gpus` GPUs on each of these nodes for [start, start + length)."""
        end = start + length
        for position in positions:
            wanted = gpus
            for number, busy in enumerate(self._busy[position]):
                if wanted and is_free_during(busy, start, end):
                    self._busy[position][number] = merge([*busy, (start, end)])
                    wanted -= 1
            for windows in self._windows.values():
                windows[position] = None


def forecast(
    jobs: Iterable[Waiting],
    pools: dict[str, Pool],
    capacity: Capacity,
    reach: Reach,
    slots: Mapping[str, tuple[str, int]],
    now: int,
) -> list[WaitEstimate]:
    """The estimates for waiting jobs, given in queue order, at `now` (microseconds).

    `slots` has the type and the start of jobs with a slot, which are their estimates.
    """
    forecasts: dict[str, PoolForecast] = {}
    refusals: dict[tuple[int, int, str | None, Share | None], Reason | None] = {}
    headed: set[str] = set()
    estimates: list[WaitEstimate] = []
    places: Counter[str | None] = Counter()
    for job in jobs:
        # Positions count per requested type: jobs for other types are not ahead.
        places[job.gpu_type] += 1
        position = places[job.gpu_type]
        shape = (job.gpus, job.nodes, job.gpu_type, job.share)
        if shape not in refusals:
            refusals[shape] = capacity.unplaceable(*shape)
        refusal = refusals[shape]
        if refusal is not None:
            estimates.append(WaitEstimate(job.id, position, refusal, None))
            continue
        able = reach.pools_for(job.gpu_type, job.shape)
        types = [pool.gpu_type for pool in able]
        slot = slots.get(job.id)
        for gpu_type in types if slot is None else ():
            if gpu_type not in forecasts:
                # Copying a large pool's calendar takes tens of milliseconds, which starting jobs wait for.
                forecasts[gpu_type] = PoolForecast(pools[gpu_type], now)
        if slot is None:
            chosen, start = _reserve(job, [(forecasts[pool.gpu_type], reach.avoided(pool, job).never) for pool in able])
        else:
            chosen, start = slot[0], max(slot[1], now)
        headless = [gpu_type for gpu_type in types if gpu_type not in headed]
        if headless:
            headed.add(chosen if chosen in headless else headless[0])
        first = position == 1
        reason = waiting_for_gpus(*shape, first=first) if headless else behind_in_line(job.gpu_type, first=first)
        estimates.append(WaitEstimate(job.id, position, reason, to_moment(start)))
    return estimates


def _reserve(job: Waiting, forecasts: list[tuple[PoolForecast, int]]) -> tuple[str, int]:
    """Reserve a job's place where it starts first; returns the type and the start."""
    length = length_micros(job.length)
    fits = [
        (place, forecast)
        for forecast, never in forecasts
        if (place := forecast.earliest(job.gpus, job.nodes, length, never)) is not None
    ]
    (start, positions), chosen = min(fits, key=lambda fit: (fit[0][0], fit[1].gpu_type))
    chosen.reserve(start, length, job.gpus, positions)
    return chosen.gpu_type, start

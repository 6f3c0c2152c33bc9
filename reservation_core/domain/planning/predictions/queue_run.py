"""A queue run forward: when its jobs would start if jobs ran for as long as is predicted, and no more came.

Free GPUs are counted on each node: a job starts in queue order as soon as enough are free on a node, or on enough
nodes, at the latest in its slot. That a place is promised to others later is not looked at: `wait_calibration` learns
how far that leads astray.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from itertools import islice
from typing import NamedTuple

from reservation_core.domain.calendar import FOREVER, OVERRUN, Row, length_micros
from reservation_core.domain.plan import Waiting
from reservation_core.domain.planning.gpu_pools import GpuPools
from reservation_core.domain.planning.planning_picture import Picture
from reservation_core.domain.planning.predictions.run_time_shares import RunTimeShares
from reservation_core.domain.planning.waiting_queue import Entry, ShapeQueue

Pieces = Sequence[tuple[int, int]]
"""(position of a node in its pool, GPUs on it)."""

_SECOND = 1_000_000
_KEPT = 60 * _SECOND


class _Counts:
    """How many GPUs are free on each node of a pool; less than none where more is under way than there is room."""

    def __init__(self, free: Sequence[int]) -> None:
        self._free = list(free)
        self._nodes: list[set[int]] = [set() for _ in range(max(free, default=0) + 1)]
        for position, gpus in enumerate(free):
            self._nodes[max(gpus, 0)].add(position)

    def change(self, position: int, gpus: int) -> None:
        """Give GPUs of a node back, or take them (less than 0)."""
        before = self._free[position]
        after = self._free[position] = before + gpus
        self._nodes[max(before, 0)].discard(position)
        while after >= len(self._nodes):
            self._nodes.append(set())
        self._nodes[max(after, 0)].add(position)

    def most(self) -> int:
        """How many GPUs are free on the node with the most."""
        return next((free for free in range(len(self._nodes) - 1, 0, -1) if self._nodes[free]), 0)

    def has_room(self, gpus: int, nodes: int) -> bool:
        """Whether so many GPUs are free on so many nodes."""
        for free in range(len(self._nodes) - 1, gpus - 1, -1):
            nodes -= len(self._nodes[free])
            if nodes <= 0:
                return True
        return False

    def take(self, gpus: int, nodes: int) -> list[int]:
        """Take GPUs on so many nodes, those with the fewest free ones first; answers their positions."""
        taken: list[int] = []
        for free in range(gpus, len(self._nodes)):
            while self._nodes[free] and len(taken) < nodes:
                taken.append(self._nodes[free].pop())
        for position in taken:
            self.change(position, -gpus)
        return taken


_Change = tuple[int, int, str, Pieces, int, str]
"""(at, number, pool, pieces, 1 where they come back or -1 where they are taken, job): or a job's slot has come."""


class _Rows(NamedTuple):
    """Which GPUs a reservation gives back, or takes, and when; known until a time (microseconds)."""

    rows: Sequence[tuple[int, Row]]
    until: int
    changes: Sequence[tuple[int, str, Pieces, int]]


class _Cursor:
    """How far the run has come in the queue of one shape."""

    def __init__(self, queue: ShapeQueue) -> None:
        self._entries = iter(queue)
        self.gpus, self.nodes = queue.shape.gpus, queue.shape.nodes
        self.head: Entry | None = next(self._entries, None)

    def find_head(self, started: Collection[str]) -> Entry | None:
        """The first job that has not started; None when there is none."""
        while self.head is not None and self.head[1].id in started:
            self.head = next(self._entries, None)
        return self.head


class RunningRows:
    """When what has GPUs or is booked gives them back, as is predicted: kept from one run to the next.

    The end of a running job is predicted anew when an eighth of the time has passed that it has run.
    """

    def __init__(self, shares: RunTimeShares) -> None:
        self._shares = shares
        self._pools: GpuPools | None = None
        self._known: dict[str, _Rows] = {}

    def changes(self, picture: Picture, at: int) -> list[_Change]:
        """All changes to come, in no order."""
        if self._pools is not picture.pools:
            self._pools = picture.pools
            self._known.clear()
        before, self._known = self._known, {}
        slots = picture.ledger.slots
        answer: list[_Change] = []
        for reservation_id, rows in picture.ledger.by_reservation.items():
            if reservation_id in slots:
                answer.append((slots[reservation_id][0], len(answer), "", (), 0, reservation_id))
                continue
            known = before.get(reservation_id)
            if known is None or known.rows is not rows or known.until <= at:
                known = self._look(picture.pools, rows, at)
            self._known[reservation_id] = known
            for when, pool, pieces, times in known.changes:
                answer.append((when, len(answer), pool, pieces, times, ""))
        return answer

    def _look(self, pools: GpuPools, rows: Sequence[tuple[int, Row]], at: int) -> _Rows:
        counts: dict[tuple[str, int, int, bool], Counter[int]] = {}
        for gpu_id, (start, end, held, _) in rows:
            pool = pools.type_of(gpu_id)
            if pool is not None:
                counts.setdefault((pool, start, end, held), Counter())[pools.position_of(gpu_id)] += 1
        changes: list[tuple[int, str, Pieces, int]] = []
        until = FOREVER
        for (pool, start, end, held), on_nodes in counts.items():
            pieces = tuple(on_nodes.items())
            if held:
                over = self._end(start, end, on_nodes.total(), at)
                until = min(until, over, at + max(_KEPT, (at - start) // 8))
                changes.append((over, pool, pieces, 1))
            elif end > at:
                until = min(until, end if start <= at else start)
                if start > at:
                    changes.append((start, pool, pieces, -1))
                changes.append((end, pool, pieces, 1))
        return _Rows(rows, until, changes)

    def _end(self, start: int, end: int, gpus: int, at: int) -> int:
        """When a job will end that has run since `start` and must end by `end`."""
        if end <= at:
            return at + OVERRUN
        share = self._shares.predict(None, gpus, (end - start) / _SECOND, max(0, at - start) / _SECOND)
        return max(at, min(end, start + int(share * _SECOND)))


class QueueRun:
    """One run from `at` (microseconds). Jobs that a quota holds back start in their slots alone.

    A job of any type starts in the first pool, by name, that has room when something comes free.
    """

    def __init__(self, picture: Picture, shares: RunTimeShares, running: RunningRows, at: int) -> None:
        self._picture = picture
        self._shares = shares
        self._at = self._begun = at
        self._starts: dict[str, int] = {}
        self._changes = running.changes(picture, at)
        self._number = len(self._changes)
        heapify(self._changes)
        self._pools = {
            gpu_type: _Counts([node.free.bit_count() for node in pool.nodes])
            for gpu_type, pool in picture.pools.by_type.items()
        }
        self._cursors: dict[str, list[_Cursor]] = {gpu_type: [] for gpu_type in self._pools}
        for queue in picture.queue.all_shapes():
            pools = [] if queue.held else picture.pools.reach.pools_for(queue.gpu_type, queue.shape)
            cursor = _Cursor(queue)
            for pool in pools:
                self._cursors[pool.gpu_type].append(cursor)

    def starts(self, wanted: Collection[str], limit: int) -> Mapping[str, int]:
        """When jobs would start (microseconds). It ends when all `wanted` have started, or as many jobs as `limit`."""
        for pool in self._pools:
            self._start_all(pool)
        left = set(wanted) - self._starts.keys()
        while left and self._changes and len(self._starts) < limit:
            before = len(self._starts)
            at = self._at = max(self._at, self._changes[0][0])
            freed: set[str] = set()
            while self._changes and self._changes[0][0] <= at:
                _, _, pool, pieces, times, job_id = heappop(self._changes)
                if job_id:
                    self._start_in_slot(job_id)
                    continue
                counts = self._pools[pool]
                for position, gpus in pieces:
                    counts.change(position, times * gpus)
                if times > 0:
                    freed.add(pool)
            for pool in sorted(freed):
                self._start_all(pool)
            left.difference_update(islice(reversed(self._starts), len(self._starts) - before))
        return self._starts

    def _start_in_slot(self, job_id: str) -> None:
        job = self._picture.queue.jobs.get(job_id)
        pool = None if job is None else self._picture.pools.pool_of(job_id)
        if job is None or pool is None or job_id in self._starts:
            return
        ledger, pools = self._picture.ledger, self._picture.pools
        pieces = tuple(Counter(pools.position_of(gpu_id) for gpu_id, _ in ledger.by_reservation[job_id]).items())
        # A slot that has begun is not counted as free.
        if ledger.slots[job_id][0] > self._begun:
            for position, gpus in pieces:
                self._pools[pool.gpu_type].change(position, -gpus)
        self._start(job, pool.gpu_type, pieces)

    def _start(self, job: Waiting, pool: str, pieces: Pieces) -> None:
        self._starts[job.id] = self._at
        length = length_micros(job.length)
        share = self._shares.predict(job.owner, job.all_gpus, length / _SECOND)
        self._number += 1
        heappush(self._changes, (self._at + min(length, int(share * _SECOND)), self._number, pool, pieces, 1, ""))

    def _start_all(self, pool: str) -> None:
        """Start what has room in a pool now, in queue order."""
        counts, cursors = self._pools[pool], self._cursors[pool]
        most = counts.most()
        ready = [
            (head[0], number)
            for number, cursor in enumerate(cursors)
            if cursor.gpus <= most
            and (cursor.nodes == 1 or counts.has_room(cursor.gpus, cursor.nodes))
            and (head := cursor.find_head(self._starts)) is not None
        ]
        heapify(ready)
        while ready:
            number = ready[0][1]
            cursor = cursors[number]
            head = cursor.find_head(self._starts)
            if head is not None and counts.has_room(cursor.gpus, cursor.nodes):
                taken = counts.take(cursor.gpus, cursor.nodes)
                self._start(head[1], pool, [(position, cursor.gpus) for position in taken])
                head = cursor.find_head(self._starts)
                if head is not None:
                    heapreplace(ready, (head[0], number))
                    continue
            heappop(ready)

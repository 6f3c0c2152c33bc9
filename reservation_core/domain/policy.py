"""Who starts when: first come, first served in each pool, with backfill that never delays the head of the line.

A pool is all GPUs of one type. Jobs are looked at in the order of the line, all requested types merged. The first that
can't start in a pool is the pool's head and gets a *shadow*: the concrete cards and time of its earliest fit. A later
job may start at once only on other cards, or where it ends before the shadow. A job that asks for any type takes the
type where it fits best; where it fits nowhere, it is the head of that pool, of those that have none yet, where it could
start first. A job that the inventory could never run is nobody's head.

What this promises: a head's earliest start is never put off by anybody after it, so with equal priorities everybody
starts in the end. A steady stream of jobs with a higher priority can starve those below it.

A pass over a line is made only when something was freed, a time was reached or somebody came in before a head; a job
that just arrived behind the heads is tried alone against their shadows.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from heapq import heapify, heappop, heapreplace
from itertools import islice

from reservation_core.domain.calendar import FOREVER, OVERRUN, length_micros, to_micros, to_moment
from reservation_core.domain.forecast import forecast
from reservation_core.domain.ledger import Ledger
from reservation_core.domain.line import Key, Line, ShapeLine
from reservation_core.domain.model import Gpu, GpuCondition, Node
from reservation_core.domain.placement import Pool, Shadow, Spots
from reservation_core.domain.plan import Commitment, Start, WaitEstimate, Waiting
from reservation_core.domain.reach import Reach
from reservation_core.domain.reasons import Capacity

SCAN_DEPTH = 1000
"""How many waiting jobs of one requested type that can't start a pass looks at before it gives up on the rest."""


@dataclass(slots=True)
class _Head:
    """The first job of a pool that can't start. Its shadow is worked out when somebody could take cards from it."""

    job: Waiting
    length: int
    shadow: Shadow | None = None
    version: int = -1


@dataclass(slots=True)
class _Cursor:
    """How far a pass has come in one shape's line. Jobs of `hopeless` length or longer can't start in this pass."""

    line: ShapeLine
    pools: list[Pool]
    index: int
    hopeless: int = FOREVER


@dataclass(slots=True)
class _Round:
    """One call of `plan_starts`."""

    now: datetime
    at: int
    limit: int
    starts: list[Start] = field(default_factory=list)
    backfilled: set[str] = field(default_factory=set)

    @property
    def full(self) -> bool:
        return len(self.starts) >= self.limit


class PlanningState:
    """The planner's picture of the world: nodes, the ledger's open rows, and the line. One process, no threads.

    `waiting` may hold only the first part of a requested type's line; `complete_types` are those in memory whole (a
    type nobody waits for counts as complete). An earlier `now` than the last one counts as the last one.
    """

    def __init__(
        self,
        nodes: Iterable[Node],
        commitments: Iterable[Commitment],
        waiting: Iterable[Waiting],
        complete_types: frozenset[str | None],
    ) -> None:
        self._nodes: tuple[Node, ...] | None = None
        self._capacity = Capacity(())
        self._pools: dict[str, Pool] = {}
        self._reach = Reach({}, self._capacity)
        self._where: dict[int, tuple[Pool, int]] = {}
        self._ledger = Ledger()
        self._line = Line()
        self._heads: dict[str, _Head] = {}
        self._dirty: set[str] = set()
        self._arrivals: dict[str, Waiting] = {}
        self._look_again_at: dict[str, int] = {}
        self._at = -FOREVER
        rows: dict[str, list[Commitment]] = {}
        for commitment in commitments:
            rows.setdefault(commitment.reservation_id, []).append(commitment)
        for reservation_id, its_rows in rows.items():
            self._ledger.replace(reservation_id, its_rows)
        jobs = sorted(waiting, key=lambda job: job.key)
        self._line.ends = {job.gpu_type: job.key for job in jobs if job.gpu_type not in complete_types}
        for job in jobs:
            self._line.add(job)
        self.set_nodes(nodes)

    def set_nodes(self, nodes: Iterable[Node]) -> None:
        """Replace the inventory."""
        nodes = tuple(nodes)
        if nodes == self._nodes:
            return
        self._nodes = nodes
        self._capacity = Capacity(nodes)
        by_type: dict[str, list[list[Gpu]]] = {}
        for node in sorted(nodes, key=lambda each: each.name):
            usable: dict[str, list[Gpu]] = {}
            for gpu in node.gpus if node.available else ():
                if gpu.condition is GpuCondition.USABLE:
                    usable.setdefault(gpu.gpu_type, []).append(gpu)
                    self._ledger.calendar(gpu.id)
            for gpu_type, gpus in usable.items():
                by_type.setdefault(gpu_type, []).append(gpus)
        self._pools = {
            gpu_type: Pool(gpu_type, gpus, self._ledger.calendars) for gpu_type, gpus in sorted(by_type.items())
        }
        self._reach = Reach(self._pools, self._capacity)
        self._where = {
            card.placed.gpu_id: (pool, node.position)
            for pool in self._pools.values()
            for node in pool.nodes
            for card in node.cards
        }
        self._heads.clear()
        self._arrivals.clear()
        self._look_again_at.clear()
        self._dirty = set(self._pools)

    def set_reservation(self, reservation_id: str, waiting: Waiting | None, commitments: Sequence[Commitment]) -> None:
        """Replace everything known about one reservation; None and nothing mean that it is gone.

        Saying the same again changes nothing. A waiting job whose place is beyond the part of its line that is in
        memory is left out: it comes by a refill.
        """
        self._mark_changed(self._ledger.replace(reservation_id, commitments))
        known = self._line.jobs.get(reservation_id)
        if known == waiting:
            return
        if known is not None:
            self._leave_line(known)
        if waiting is not None and self._line.add(waiting):
            self._arrivals[waiting.id] = waiting

    def _leave_line(self, job: Waiting) -> None:
        self._line.remove(job.id)
        self._arrivals.pop(job.id, None)
        self._dirty.update(gpu_type for gpu_type, head in self._heads.items() if head.job.id == job.id)

    def _mark_changed(self, gpu_ids: Iterable[int]) -> None:
        for gpu_id in gpu_ids:
            where = self._where.get(gpu_id)
            if where is not None:
                pool, position = where
                pool.stale.add(position)
                self._dirty.add(pool.gpu_type)

    def needs_refill(self, low_water: int) -> list[tuple[str | None, Key | None]]:
        """Requested types whose part of the line in memory is short and goes on in the database.

        Answers each with the key (-priority, seq) to go on after (None: from the start). Jobs that the inventory can't
        run count only where it can run none at all: a window full of them must not hide those that could start.
        """
        wanted: list[tuple[str | None, Key | None]] = []
        for gpu_type, end in self._line.ends.items():
            shape_lines = self._line.shape_lines(gpu_type)
            placeable = sum(len(each) for each in shape_lines if self._reach.pools_for(gpu_type, each.shape))
            in_reach = gpu_type in self._pools if gpu_type is not None else bool(self._pools)
            count = placeable if in_reach else sum(len(each) for each in shape_lines)
            if count < low_water:
                wanted.append((gpu_type, end))
        return wanted

    def refill(self, gpu_type: str | None, jobs: Sequence[Waiting], complete: bool) -> None:
        """Append the next jobs of one requested type's line; `complete` says that there are none after them.

        Jobs that hold GPUs by now are left out: the database was read before they started.
        """
        if complete:
            self._line.ends.pop(gpu_type, None)
        elif jobs:
            last = max(job.key for job in jobs)
            end = self._line.ends.get(gpu_type)
            self._line.ends[gpu_type] = last if end is None else max(last, end)
        for job in jobs:
            known = self._line.jobs.get(job.id)
            if known == job or job.id in self._ledger.by_reservation:
                continue
            if known is not None:
                self._leave_line(known)
            self._line.add(job)
        self._dirty.update(self._pools if gpu_type is None else {gpu_type} & self._pools.keys())

    def plan_starts(self, now: datetime, limit: int) -> list[Start]:
        """Who starts now, at most `limit`; the decision is applied to this picture at once.

        Called again at the same time it answers the rest, and nothing when all is decided.
        """
        at = self._catch_up(now)
        this = _Round(now if to_micros(now) == at else to_moment(at), at, limit)
        while not this.full:
            if self._dirty:
                self._pass(this)
            elif self._arrivals:
                self._plan_arrivals(this)
            else:
                break
        return this.starts

    def _catch_up(self, now: datetime) -> int:
        """Let time pass up to `now`."""
        self._at = at = max(self._at, to_micros(now))
        self._mark_changed(self._ledger.edges_until(at))
        for gpu_type, when in list(self._look_again_at.items()):
            if when <= at:
                del self._look_again_at[gpu_type]
                self._dirty.add(gpu_type)
        for pool in self._pools.values():
            pool.refresh(at)
        return at

    def _pass(self, this: _Round) -> None:
        """Go through the lines of the pools in which something changed, from the start."""
        any_type = [each for each in self._line.shape_lines(None) if self._reach.pools_for(None, each.shape)]
        # A job that asks for any type ties the pools together: where it goes depends on all of them. And where somebody
        # arrived meanwhile, they are looked at in the same pass, so that all start in the order of the line.
        arrived = {job.gpu_type for job in self._arrivals.values()}
        types = {each for each in self._pools if any_type or each in self._dirty or each in arrived}
        self._dirty = types
        self._arrivals = {}
        last_heads = {gpu_type: self._heads.pop(gpu_type) for gpu_type in types if gpu_type in self._heads}
        shape_lines = [each for gpu_type in sorted(types) for each in self._line.shape_lines(gpu_type)] + any_type
        cursors = [
            _Cursor(each, pools, each.first)
            for each in shape_lines
            if (pools := self._reach.pools_for(each.gpu_type, each.shape))
        ]
        heap = [(*each.line.entries[each.index][:2], number, each) for number, each in enumerate(cursors)]
        heapify(heap)
        passed_over: Counter[str | None] = Counter()
        while heap and not this.full:
            _, _, number, cursor = heap[0]
            if self._step(cursor, this, passed_over, last_heads):
                following = cursor.line.entries[cursor.index]
                heapreplace(heap, (following[0], following[1], number, cursor))
            else:
                heappop(heap)
        if not heap:
            self._dirty = set()
            self._settle(this)

    def _step(
        self, cursor: _Cursor, this: _Round, passed_over: Counter[str | None], last_heads: dict[str, _Head]
    ) -> bool:
        """Look at one job; false when nobody after it in its shape's line can start in this pass."""
        line = cursor.line
        _, _, job, length = line.entries[cursor.index]
        pools = self._in_reach(job, cursor.pools)
        if not pools:
            return False
        if length < cursor.hopeless:
            at_front = cursor.index == line.first
            if self._consider(job, length, pools, this, last_heads):
                cursor.index = line.first if at_front else cursor.index
                return cursor.index < len(line.entries)
            roomy = any(pool.has_room(job.gpus, job.nodes, self._reach.avoided(pool, job).never) for pool in pools)
            if all(pool.gpu_type in self._heads for pool in pools):
                cursor.hopeless = length if roomy else 0
            elif not any(pool.free for pool in pools):
                return False
        cursor.index += 1
        passed_over[line.gpu_type] += 1
        return (
            cursor.hopeless > 0
            and cursor.index < len(line.entries)
            and passed_over[line.gpu_type] < SCAN_DEPTH
            and cursor.hopeless > line.shortest
        )

    def _in_reach(self, job: Waiting, pools: list[Pool]) -> list[Pool]:
        """The pools in which nobody unknown to us can be before this job in line."""
        if not self._line.ends:
            return pools
        if job.gpu_type is not None:
            horizon = self._line.horizon(None)
            return pools if horizon is None or job.key <= horizon else []
        horizons = {pool.gpu_type: self._line.horizon(pool.gpu_type) for pool in pools}
        return [pool for pool in pools if (end := horizons[pool.gpu_type]) is None or job.key <= end]

    def _plan_arrivals(self, this: _Round) -> None:
        """Try those who came since the last pass, when nobody before them can have become able to start."""
        for job in sorted(self._arrivals.values(), key=lambda each: each.key):
            if this.full:
                break
            del self._arrivals[job.id]
            pools = self._in_reach(job, self._reach.pools_for(job.gpu_type, job.shape))
            if not pools:
                continue
            types = {pool.gpu_type for pool in pools}
            if any(
                head.job.key > job.key and (gpu_type in types or head.job.gpu_type is None)
                for gpu_type, head in self._heads.items()
            ):
                self._dirty |= types
                break
            self._consider(job, length_micros(job.length), pools, this, {})
        self._settle(this)

    def _consider(
        self, job: Waiting, length: int, pools: list[Pool], this: _Round, last_heads: dict[str, _Head]
    ) -> bool:
        """Start a job where it fits best, or else make it the head of a pool that has none. True when it starts."""
        best: tuple[int, Pool, Spots] | None = None
        for pool in pools:
            avoided = self._reach.avoided(pool, job)
            if pool.has_room(job.gpus, job.nodes, avoided.never):
                found = pool.place(job.gpus, job.nodes, this.at + length, self._shadow(pool, this.at), avoided)
                if found is not None and (best is None or found[0] < best[0]):
                    best = (found[0], pool, found[1])
        if best is not None:
            _, pool, spots = best
            row = (this.at, this.at + length, True, job.id)
            placed = pool.occupy(spots, row)
            self._ledger.book(job.id, placed, row)
            self._line.remove(job.id)
            if pool.gpu_type in self._heads:
                this.backfilled.add(pool.gpu_type)
            this.starts.append(Start(job.id, this.now, this.now + job.length, placed, job.version))
            return True
        headless = [pool for pool in pools if pool.gpu_type not in self._heads]
        if len(headless) > 1:
            # Without a free card it can't matter whose head it is, and when one comes free all is decided anew.
            if not any(pool.free for pool in pools):
                return False
            self._note_overruns(headless, this.at)
            never = {pool.gpu_type: self._reach.avoided(pool, job).never for pool in headless}
            headless.sort(
                key=lambda pool: (
                    pool.earliest(job.gpus, job.nodes, length, this.at, never[pool.gpu_type]),
                    pool.gpu_type,
                )
            )
        for pool in headless[:1]:
            last = last_heads.get(pool.gpu_type)
            known = last is not None and last.job.id == job.id and last.version == pool.version
            self._heads[pool.gpu_type] = last if last is not None and known else _Head(job, length)
        return False

    def _shadow(self, pool: Pool, at: int) -> Shadow | None:
        head = self._heads.get(pool.gpu_type)
        if head is None:
            return None
        if head.shadow is None:
            never = self._reach.avoided(pool, head.job).never
            head.shadow = pool.shadow(head.job.gpus, head.job.nodes, head.length, at, never)
            head.version = -1 if pool.overrun else pool.version
            self._note_overruns([pool], at)
        return head.shadow

    def _note_overruns(self, pools: list[Pool], at: int) -> None:
        """When a pod will free its cards that should have ended already is a guess, and moves as time passes."""
        for pool in pools:
            if pool.overrun:
                self._look_again_at[pool.gpu_type] = at + OVERRUN

    def _settle(self, this: _Round) -> None:
        """After backfill the same earliest fit may lie on other cards: then those behind get another look."""
        for gpu_type in this.backfilled:
            pool, head = self._pools[gpu_type], self._heads[gpu_type]
            before = head.shadow
            head.shadow = None
            if pool.free and self._shadow(pool, this.at) != before:
                self._dirty.add(gpu_type)
        this.backfilled.clear()

    def estimates(self, now: datetime, limit: int) -> list[WaitEstimate]:
        """What the first `limit` waiting jobs are told, in the order of the line."""
        at = self._catch_up(now)
        return forecast(islice(self._line.in_order(), limit), self._pools, self._capacity, self._reach, at)

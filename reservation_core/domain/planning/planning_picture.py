"""The planner's picture of the world: nodes, the ledger's open rows, the line, and where something has changed in them.

`slot_decisions` and `start_decisions` decide from it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime

from reservation_core.domain.calendar import FOREVER, Row, to_micros
from reservation_core.domain.cards.placement_policies import DEFAULT_POLICY, PlacementPolicy
from reservation_core.domain.model import Gpu, GpuCondition, Node
from reservation_core.domain.plan import Asker, Commitment, Waiting
from reservation_core.domain.planning.open_rows import Ledger
from reservation_core.domain.planning.waiting_queue import Key, Line
from reservation_core.domain.policy.quota_book import QuotaBook
from reservation_core.domain.policy.quota_meters import Amount
from reservation_core.domain.policy.rules import Holding
from reservation_core.domain.pools.pool import Pool, Shadow
from reservation_core.domain.pools.pool_profile import PoolProfile
from reservation_core.domain.pools.reach import Reach
from reservation_core.domain.pools.waiting_reasons import Capacity

_LET_GO = 1000
"""How many who are held back and have no slot are looked at again at once."""


@dataclass(slots=True)
class Head:
    """The first job of a pool that has no slot and can't start.

    Its shadow is worked out when somebody could take cards from it.
    """

    job: Waiting
    length: int
    shadow: Shadow | None = None
    version: int = -1


class Picture:
    """The planner's picture. One process, no threads.

    `waiting` may hold only the first part of a requested type's line; `complete_types` are those in memory whole (a
    type nobody waits for counts as complete). An earlier `now` than the last one counts as the last one.
    """

    def __init__(
        self,
        nodes: Iterable[Node],
        commitments: Iterable[Commitment],
        waiting: Iterable[Waiting],
        complete_types: frozenset[str | None],
        policy: PlacementPolicy = DEFAULT_POLICY,
    ) -> None:
        self._policy = policy
        self._seen: dict[str, Counter[int]] = {}  # pieces of jobs that have cards, by type and number of cards
        self._nodes: tuple[Node, ...] | None = None
        self._capacity = Capacity(())
        self._pools: dict[str, Pool] = {}
        self._profiles: dict[str, PoolProfile] = {}
        self._reach = Reach({}, self._capacity)
        self._where: dict[int, tuple[Pool, int]] = {}
        self._ledger = Ledger()
        self._line = Line()
        self._heads: dict[str, Head] = {}
        self._dirty: set[str] = set()
        self._freed: set[str] = set()
        self._doubtful = True  # whether a slot may be on cards that can't be used
        self._arrivals: dict[str, Waiting] = {}
        self._look_again_at: dict[str, int] = {}
        self._at = -FOREVER
        self._quotas: QuotaBook | None = None
        rows: dict[str, list[Commitment]] = {}
        for commitment in commitments:
            rows.setdefault(commitment.reservation_id, []).append(commitment)
        for reservation_id, its_rows in rows.items():
            self._ledger.replace(reservation_id, its_rows)
        jobs = sorted(waiting, key=lambda job: job.key)
        self._line.ends = {
            job.gpu_type: job.key
            for job in jobs
            if job.gpu_type not in complete_types and job.id not in self._ledger.slots
        }
        for job in jobs:
            self._line.add(job, slotted=job.id in self._ledger.slots)
        self.set_nodes(nodes)

    def set_nodes(self, nodes: Iterable[Node]) -> None:
        """Replace the inventory."""
        nodes = tuple(nodes)
        if nodes == self._nodes:
            return
        self._nodes = nodes
        self._capacity = Capacity(nodes)
        by_type: dict[str, list[list[Gpu]]] = {}
        for node in sorted(nodes, key=lambda node_state: node_state.name):
            usable: dict[str, list[Gpu]] = {}
            for gpu in node.gpus if node.available else ():
                if gpu.condition is GpuCondition.USABLE:
                    usable.setdefault(gpu.gpu_type, []).append(gpu)
                    self._ledger.calendar(gpu.id)
            for gpu_type, gpus in usable.items():
                by_type.setdefault(gpu_type, []).append(gpus)
        links = {node.name: node.links for node in nodes if node.links is not None}
        self._pools = {
            gpu_type: Pool(gpu_type, gpus, self._ledger.calendars, self._ledger.slots, links=links, policy=self._policy)
            for gpu_type, gpus in sorted(by_type.items())
        }
        self._profiles = {gpu_type: PoolProfile(pool) for gpu_type, pool in self._pools.items()}
        self._reach = Reach(self._pools, self._capacity)
        self._where = {
            card.placed.gpu_id: (pool, node.position)
            for pool in self._pools.values()
            for node in pool.nodes
            for card in node.cards
        }
        self._seen = {gpu_type: Counter() for gpu_type in self._pools}
        for reservation_id in self._ledger.by_reservation:
            self._count_pieces(reservation_id, 1)
        self._heads.clear()
        self._arrivals.clear()
        self._look_again_at.clear()
        self._dirty = set(self._pools)
        self._freed = set(self._pools)
        self._doubtful = True

    def _count_pieces(self, reservation_id: str, times: int) -> None:
        """Count what somebody who has cards, or is promised some without waiting, has on each node."""
        if reservation_id not in self._ledger.slots:  # who has a slot is counted as one who waits
            rows = self._ledger.by_reservation.get(reservation_id, ())
            places = Counter(self._where[gpu_id] for gpu_id, _ in rows if gpu_id in self._where)
            for (pool, _), gpus in places.items():
                self._seen[pool.gpu_type][gpus] += times

    def _note_demand(self) -> None:
        """Tell the pools what is usual in them: what waits, and what has cards."""
        of_any_type = self._line.pieces(None)
        for gpu_type, pool in self._pools.items():
            pool.set_demand(self._seen[gpu_type] + self._line.pieces(gpu_type) + of_any_type)

    def set_quotas(self, quotas: QuotaBook | None) -> None:
        """From now on these hold; they must know what is held and booked. Slots are told to them here."""
        self._quotas = quotas
        for job_id in self._ledger.slots:
            self._note_slot(job_id)
        self._line.let_go()
        self._dirty = set(self._pools)
        self._freed = set(self._pools)

    def note_held(self, holdings: Iterable[Holding]) -> bool:
        """This is all that is held and booked; true when somebody has less than before."""
        if self._quotas is None:
            return False
        freed = self._quotas.note_held(holdings, self._line.jobs)
        if freed:
            self._freed.update(self._pools)
        # Jobs with a slot are moved up to now as soon as that may be. The others are asked in turns.
        for job in self._line.let_some_go(_LET_GO):
            self._arrivals[job.id] = job
        return freed

    def _note_slot(self, job_id: str) -> None:
        """Tell the quotas of a slot that was read."""
        job = self._line.jobs.get(job_id)
        gpu_type = self.type_of(self._ledger.by_reservation[job_id][0][0])
        if job is not None and gpu_type is not None:
            self._note_claim(job, gpu_type, *self._ledger.slots[job_id])

    def _note_claim(self, job: Waiting, gpu_type: str, start: int, end: int) -> Asker | None:
        """Tell the quotas what a job has from now on; answers for whom, if any bounds them."""
        if self._quotas is None or job.booking_id is not None:
            return None
        asker = Asker(job.owner, job.project, gpu_type)
        freed = self._quotas.put_for(job.id, asker, Amount(job.gpus * job.nodes, start, end))
        if not self._quotas.binds(asker):
            return None
        if freed:
            self._freed.update(self._pools)
        return asker

    def _drop_claim(self, reservation_id: str) -> None:
        if self._quotas is not None and self._quotas.put(reservation_id, ()):
            self._freed.update(self._pools)

    def _within_quotas(self, job: Waiting, pool: Pool, start: int, length: int) -> bool:
        """Whether a job may be there then, as far as quotas go."""
        if self._quotas is None or job.booking_id is not None:
            return True
        asker = Asker(job.owner, job.project, pool.gpu_type)
        return (
            not self._quotas.binds(asker)
            or self._quotas.earliest(asker, job.gpus * job.nodes, length, start, job.id) == start
        )

    def set_shares(self, shares: Mapping[int, int]) -> None:
        """Among equal priorities, those go first whose owner has the smaller rank here; owners without one have 0."""
        if self._line.set_shares(shares):
            self._dirty = set(self._pools)

    def set_reservation(self, reservation_id: str, waiting: Waiting | None, commitments: Sequence[Commitment]) -> None:
        """Replace everything known about one reservation; None and nothing mean that it is gone.

        Saying the same again changes nothing. A waiting job whose place is beyond the part of its line that is in
        memory is left out, unless it has a slot: it comes by a refill.
        """
        had = reservation_id in self._ledger.by_reservation
        self._count_pieces(reservation_id, -1)
        self._mark_changed(self._ledger.replace(reservation_id, commitments), freed=had)
        self._count_pieces(reservation_id, 1)
        slotted = reservation_id in self._ledger.slots
        self._doubtful |= slotted
        known = self._line.jobs.get(reservation_id)
        if known == waiting:
            if known is not None:
                self._set_slotted(known, slotted)
        else:
            if known is not None:
                self._leave_line(known)
            if waiting is not None and self._line.add(waiting, slotted=slotted):
                self._arrivals[waiting.id] = waiting
        if self._quotas is not None:
            if slotted:
                self._note_slot(reservation_id)
            elif waiting is not None or not commitments:
                self._drop_claim(reservation_id)

    @property
    def owners(self) -> Set[int]:
        """Owners of jobs that were ever in the queue."""
        return self._line.owners

    @property
    def in_line(self) -> Mapping[str, Waiting]:
        """Waiting jobs, by id, as far as they are in memory."""
        return self._line.jobs

    @property
    def types(self) -> tuple[str, ...]:
        """The types of the usable cards."""
        return tuple(self._pools)

    def type_of(self, gpu_id: int) -> str | None:
        """The type of a usable card."""
        where = self._where.get(gpu_id)
        return None if where is None else where[0].gpu_type

    def has_slot(self, reservation_id: str) -> bool:
        """Whether it waits with a slot as far as is known."""
        return reservation_id in self._ledger.slots

    def rows_of(self, reservation_id: str) -> tuple[tuple[int, Row], ...]:
        """The open rows of a reservation, by card."""
        return self._ledger.by_reservation.get(reservation_id, ())

    def holds_on(self, gpu_id: int) -> list[Row]:
        """The rows of a card whose pods may exist."""
        return [row for row in self._ledger.calendar(gpu_id).rows if row[2]]

    def _set_slotted(self, job: Waiting, has_slot: bool) -> None:
        """A head that has a slot now needs no shadow; who lost theirs may be one."""
        if has_slot != (job.id in self._line.slotted):
            self._line.mark_slotted(job.id, has_slot)
            if has_slot:
                self._arrivals.pop(job.id, None)
                self._drop_head(job)
            else:
                self._arrivals[job.id] = job

    def _drop_head(self, job: Waiting) -> None:
        for gpu_type in [gpu_type for gpu_type, head in self._heads.items() if head.job.id == job.id]:
            del self._heads[gpu_type]
            self._dirty.add(gpu_type)

    def _leave_line(self, job: Waiting) -> None:
        self._line.remove(job.id)
        self._arrivals.pop(job.id, None)
        self._dirty.update(gpu_type for gpu_type, head in self._heads.items() if head.job.id == job.id)

    def _mark_changed(self, gpu_ids: Iterable[int], *, freed: bool = False) -> None:
        """Look again at these cards; `freed` says that they may be free sooner than they were."""
        # Many cards are on one node.
        for where in {self._where.get(gpu_id) for gpu_id in gpu_ids}:
            if where is not None:
                pool, position = where
                pool.stale.add(position)
                self._profiles[pool.gpu_type].forget(position, freed=freed)
                self._dirty.add(pool.gpu_type)
                if freed:
                    self._freed.add(pool.gpu_type)

    def needs_refill(self, low_water: int) -> list[tuple[str | None, Key | None]]:
        """Requested types whose part of the line in memory is short and goes on in the database.

        Answers each with the key (-priority, seq) to go on after (None: from the start). Jobs that the inventory can't
        run count only where it can run none at all: a window full of them must not hide those that could start.
        """
        wanted: list[tuple[str | None, Key | None]] = []
        for gpu_type, end in self._line.ends.items():
            shape_lines = self._line.shape_lines(gpu_type)
            placeable = sum(len(line) for line in shape_lines if self._reach.pools_for(gpu_type, line.shape))
            in_reach = gpu_type in self._pools if gpu_type is not None else bool(self._pools)
            count = placeable if in_reach else sum(len(line) for line in shape_lines)
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
        slots = self._ledger.slots
        for job in jobs:
            known = self._line.jobs.get(job.id)
            if known == job or (job.id in self._ledger.by_reservation and job.id not in slots):
                continue
            if known is not None:
                self._leave_line(known)
            self._line.add(job, slotted=job.id in slots)
        self._dirty.update(self._pools if gpu_type is None else {gpu_type} & self._pools.keys())

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

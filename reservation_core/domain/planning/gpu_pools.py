"""The usable GPUs of one inventory as pools, one for each type, and in which of them something has changed."""

from collections.abc import Iterable

from reservation_core.domain.calendar import Row, length_micros
from reservation_core.domain.cards.placement_policies import PlacementPolicy
from reservation_core.domain.model import Gpu, GpuCondition, Node
from reservation_core.domain.plan import Shape, Waiting
from reservation_core.domain.planning.open_rows import Ledger
from reservation_core.domain.planning.waiting_queue import WaitingQueue
from reservation_core.domain.policy.quota_book import Counted
from reservation_core.domain.pools.freed_time import EarlierPlaces, FreedTime, Slot
from reservation_core.domain.pools.pool import Avoided, Pool, Shadow
from reservation_core.domain.pools.pool_profile import PoolProfile
from reservation_core.domain.pools.pool_shares import PoolShares
from reservation_core.domain.pools.reach import Reach
from reservation_core.domain.pools.waiting_reasons import Capacity

Marks = tuple[set[str], set[str], dict[str, tuple[bool, bool]], tuple[set[Counted], set[Counted]]]
"""The types in which something was freed, those to be planned again, whether all jobs are looked at in them, and the
quotas whose jobs are looked at."""


class GpuPools:
    """The pools of one inventory; another inventory needs new ones.

    `dirty` are the types whose part of the queue is to be gone through again, `freed` those in which slots may have
    become possible earlier. In new pools both are all of them, and every slot is `unchecked`: it may be on unusable
    GPUs. `freed_quotas` is what quotas count of which others may have more since a walk began.
    """

    def __init__(self, nodes: tuple[Node, ...], ledger: Ledger, policy: PlacementPolicy) -> None:
        self.nodes = nodes
        self._ledger = ledger
        by_type: dict[str, list[list[Gpu]]] = {}
        for node in sorted(nodes, key=lambda node_state: node_state.name):
            usable: dict[str, list[Gpu]] = {}
            for gpu in node.gpus if node.available else ():
                if gpu.condition is GpuCondition.USABLE:
                    usable.setdefault(gpu.gpu_type, []).append(gpu)
                    ledger.calendar(gpu.id)
            for gpu_type, gpus in usable.items():
                by_type.setdefault(gpu_type, []).append(gpus)
        links = {node.name: node.links for node in nodes if node.links is not None}
        self.by_type = {
            gpu_type: Pool(gpu_type, gpus, ledger.calendars, ledger.slots, links=links, policy=policy)
            for gpu_type, gpus in sorted(by_type.items())
        }
        self.profiles = {gpu_type: PoolProfile(pool) for gpu_type, pool in self.by_type.items()}
        self.freed_time = {gpu_type: FreedTime(profile) for gpu_type, profile in self.profiles.items()}
        self._earlier_places: dict[tuple[str | None, Shape], EarlierPlaces] = {}
        self.capacity = Capacity(nodes)
        self.reach = Reach(self.by_type, self.capacity)
        self._places = {
            card.placed.gpu_id: (pool, node.position)
            for pool in self.by_type.values()
            for node in pool.nodes
            for card in node.cards
        }
        self._bits = {
            card.placed.gpu_id: card.bit for pool in self.by_type.values() for node in pool.nodes for card in node.cards
        }
        self.shares = PoolShares(nodes, self.by_type, ledger)
        self._allocated: dict[str, dict[int, int]] = {gpu_type: {} for gpu_type in self.by_type}
        for reservation_id in ledger.by_reservation:
            self.count_pieces(ledger.allocated(reservation_id), 1)
        self.dirty = set(self.by_type)
        self.freed = set(self.by_type)
        self.freed_quotas: set[Counted] = set()
        self._next_freed_quotas: set[Counted] = set()
        self._unchecked = set(ledger.slots)
        self._last_rows: tuple[tuple[int, Row], ...] | None = None
        self._last_slot: Slot

    @property
    def version(self) -> int:
        """A number that grows with each change of what is free, and of what was given back."""
        return sum([freed.changes + freed.pool.version for freed in self.freed_time.values()])

    def for_job(self, job: Waiting) -> list[Pool]:
        """The pools that could run a job if all their GPUs were free."""
        return self.reach.pools_of(job)

    def never(self, pool: Pool, job: Waiting) -> int:
        """The mask of the nodes of a pool that a job must not use."""
        return self.reach.avoided(pool, job).never

    def has_room(self, job: Waiting, pools: Iterable[Pool]) -> bool:
        """Whether one of these pools has enough free GPUs for a job now, whatever is promised for later."""
        gpus, nodes = job.gpus, job.nodes
        least = gpus * nodes
        return any(pool.free >= least and pool.has_room(gpus, nodes, self.never(pool, job)) for pool in pools)

    def avoided(
        self, job: Waiting, pool: Pool, at: int, end: int, shadow: Shadow | None, *, head_asks: bool
    ) -> Avoided:
        """The nodes that a job avoids, and those of its pool where it lacks CPUs or memory from now until `end`.

        Where CPUs or memory might delay the pool's head, its nodes are left alone. `head_asks`: it asks for some.
        """
        avoided = self.reach.avoided(pool, job)
        if not (head_asks or self.shares.matters(job)):
            return avoided
        never = avoided.never | self.shares.unfit(job, pool, at, end)
        if shadow is not None and shadow.start < end:
            never |= shadow.nodes & (~0 if head_asks or job.share is not None else self.shares.asked_on(pool))
        return Avoided(never, avoided.last & ~never)

    def shadow(self, pool: Pool, job: Waiting, at: int, never: int) -> Shadow | None:
        """The earliest fit of a pool's head."""
        length = length_micros(job.length)
        profile = self.profiles[pool.gpu_type]
        bounded = self.shares.timelines(job, profile, pool, at, {})
        if not bounded:
            return pool.shadow(job.gpus, job.nodes, length, at, never)
        fit = profile.earliest(job.gpus, job.nodes, length, at, never=never, instead=bounded)
        return None if fit is None else Shadow(fit.start, {node.position: mask for node, mask in fit.spots})

    def position_of(self, gpu_id: int) -> int:
        """The position in its pool of the node of a usable GPU."""
        return self._places[gpu_id][1]

    def positions_of(self, rows: Iterable[tuple[int, Row]]) -> set[int]:
        """The positions in their pool of the nodes of rows on usable GPUs."""
        return {self._places[gpu_id][1] for gpu_id, _ in rows}

    def type_of(self, gpu_id: int) -> str | None:
        """The type of a GPU if it is usable."""
        place = self._places.get(gpu_id)
        return None if place is None else place[0].gpu_type

    def slot_of(self, job_id: str) -> Slot:
        """Where a slot is, but for GPUs of it that can't be used."""
        rows, gpu_type = self._ledger.by_reservation[job_id], ""
        if rows is self._last_rows:  # a gang is asked about several times, and has many GPUs
            return self._last_slot
        masks: dict[int, int] = {}
        for gpu_id, _ in rows:
            place = self._places.get(gpu_id)
            if place is not None:
                pool, position = place
                gpu_type = pool.gpu_type
                masks[position] = masks.get(position, 0) | self._bits[gpu_id]
        self._last_rows, self._last_slot = rows, (gpu_type, rows[0][1], masks)
        return self._last_slot

    def pool_of(self, reservation_id: str) -> Pool | None:
        """The pool that has all GPUs of a slot; None when one of them is not usable."""
        pool: Pool | None = None
        for gpu_id, _ in self._ledger.by_reservation[reservation_id]:
            place = self._places.get(gpu_id)
            if place is None:
                return None
            pool = place[0]
        return pool

    def doubt_slot(self, reservation_id: str) -> None:
        """Note that a slot was read: it may be on unusable GPUs."""
        self._unchecked.add(reservation_id)

    def take_unusable(self, slotted: set[str]) -> list[str]:
        """Jobs, of these with a slot, whose slot was read since the last call and is on unusable GPUs."""
        unchecked, self._unchecked = self._unchecked, set()
        return [job_id for job_id in unchecked & slotted if self.pool_of(job_id) is None]

    def count_pieces(self, rows: Iterable[tuple[int, Row]], times: int) -> None:
        """Count what a reservation that does not wait has on each node."""
        on_node: dict[tuple[Pool, int], int] = {}
        for gpu_id, _ in rows:
            place = self._places.get(gpu_id)
            if place is not None:
                on_node[place] = on_node.get(place, 0) + 1
        for (pool, _), gpus in on_node.items():
            _count(self._allocated[pool.gpu_type], gpus, times)

    def set_demand(self, queue: WaitingQueue) -> None:
        """Set what is usual in the pools: what waits, and what has GPUs."""
        for gpu_type, pool in self.by_type.items():
            demand = self._allocated[gpu_type].copy()
            for shape_queue in (*queue.all_of(gpu_type), *queue.all_of(None)):
                _count(demand, shape_queue.shape.gpus, shape_queue.shape.nodes * len(shape_queue))
            pool.set_demand(demand)

    def mark_changed(self, gpu_ids: Iterable[int], *, freed: bool) -> None:
        """Look again at these GPUs; `freed` says that they may be free sooner than they were."""
        # Many GPUs are on one node.
        for place in self.shares.with_others({self._places.get(gpu_id) for gpu_id in gpu_ids}, gpu_ids):
            if place is not None:
                pool, position = place
                pool.stale.add(position)
                self.profiles[pool.gpu_type].forget(position, freed=freed)
                self.dirty.add(pool.gpu_type)
                if freed:
                    self.freed.add(pool.gpu_type)
                    self.freed_time[pool.gpu_type].add(position)

    def refresh_gpus(self, gpu_ids: Iterable[int], at: int, *, back: bool) -> None:
        """Bring these GPUs up to date after their rows were taken out or put `back`, with nothing decided yet.

        Timelines of their nodes that were built in between are dropped: they lack these rows.
        """
        for gpu_id in gpu_ids:
            place = self._places.get(gpu_id)
            if place is not None:
                pool, position = place
                pool.stale.add(position)
                if back:
                    self.profiles[pool.gpu_type].forget(position, freed=True)
        self.refresh(at)

    def refresh(self, at: int) -> list[str]:
        """Bring all pools up to date; returns the types in which there was something to look at."""
        stale = [gpu_type for gpu_type, pool in self.by_type.items() if pool.stale]
        for gpu_type in stale:
            self.by_type[gpu_type].refresh(at)
        return stale

    def plan_again(self, gpu_type: str | None) -> None:
        """Go through the queue of a requested type again; None is any type, and ties all pools together."""
        self.dirty.update(self.by_type if gpu_type is None else self.by_type.keys() & {gpu_type})

    def earlier_places(self, gpu_type: str | None, shape: Shape) -> EarlierPlaces:
        """Where jobs of a shape may find earlier places than their slots."""
        known = self._earlier_places.get((gpu_type, shape))
        if known is None:
            pools = self.reach.pools_for(gpu_type, shape)
            freed_times = {pool.gpu_type: self.freed_time[pool.gpu_type] for pool in pools}
            known = self._earlier_places[gpu_type, shape] = EarlierPlaces(freed_times, shape, self.slot_of)
        return known

    def note_asked(self, job: Waiting) -> None:
        """Note that a job with a slot asks for something else than when it got it."""
        for pool in self.for_job(job):
            self.freed_time[pool.gpu_type].add_job(job.id)

    def walk_again(self) -> None:
        """Look for earlier slots in all pools."""
        self.freed.update(self.by_type)
        for freed_time in self.freed_time.values():
            freed_time.add_all()

    def free_quotas(self, freed: set[Counted]) -> None:
        """Look for earlier slots of jobs that these quotas bound."""
        self.freed.update(self.by_type)
        self.freed_quotas |= freed
        self._next_freed_quotas |= freed

    def take_freed(self) -> frozenset[str]:
        """The types in which slots may have become possible earlier since the last call, which a walk goes through.

        The walk before is over: what it looked at in other types is not looked at again.
        """
        freed, self.freed = self.freed, set()
        self._earlier_places.clear()
        self.freed_quotas, self._next_freed_quotas = self._next_freed_quotas, set()
        for gpu_type, freed_time in self.freed_time.items():
            freed_time.begin_walk(here=gpu_type in freed)
        return frozenset(freed)

    def marks(self) -> Marks:
        """The marks of what is to be looked at, for `restore`."""
        everywhere = {name: freed.everywhere for name, freed in self.freed_time.items()}
        quotas = set(self.freed_quotas), set(self._next_freed_quotas)
        return set(self.freed), set(self.dirty), everywhere, quotas

    def restore(self, marks: Marks) -> None:
        """Put marks back after something was tried and undone."""
        self.freed, self.dirty, everywhere, (self.freed_quotas, self._next_freed_quotas) = marks
        for name, freed_time in self.freed_time.items():
            freed_time.everywhere = everywhere[name]

    def begin_pass(self, arrived: set[str | None], *, tied: bool) -> set[str]:
        """The types that a pass goes through: what is dirty or has arrivals, and all where a job ties them together."""
        self.dirty = {gpu_type for gpu_type in self.by_type if tied or gpu_type in self.dirty or gpu_type in arrived}
        return self.dirty

    def end_pass(self, given_back: Iterable[str] = ()) -> None:
        """Settle the types of a pass but for those in which a start gave GPUs back."""
        self.dirty = set(given_back)


def _count(pieces: dict[int, int], gpus: int, times: int) -> None:
    count = pieces.pop(gpus, 0) + times
    if count:
        pieces[gpus] = count

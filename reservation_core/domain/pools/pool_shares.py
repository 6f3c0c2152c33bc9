"""CPUs and memory in the planner's picture: on which nodes of a pool a job finds enough of them.

Where no job asks for anything, nothing here costs anything. Answers are computed anew each time: few nodes have jobs
that ask, and few jobs ask for more than the share that their GPUs are.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from reservation_core.domain.calendar import GpuCalendar, Row
from reservation_core.domain.cards.card_masks import bits
from reservation_core.domain.model import Node
from reservation_core.domain.plan import Waiting
from reservation_core.domain.pools.node_shares import Machine
from reservation_core.domain.pools.node_timeline import Timeline
from reservation_core.domain.pools.pool import Pool
from reservation_core.domain.pools.pool_profile import PoolProfile
from reservation_core.domain.request_terms import Share

Place = tuple[Pool, int]


class OpenRows(Protocol):
    """The part of the ledger that is read here."""

    shares: dict[str, Share]
    shares_version: int
    by_reservation: dict[str, tuple[tuple[int, Row], ...]]

    def calendar(self, gpu_id: int) -> GpuCalendar: ...


class PoolShares:
    """The nodes of one inventory; another inventory needs new ones."""

    def __init__(self, nodes: Iterable[Node], pools: Mapping[str, Pool], ledger: OpenRows) -> None:
        self._ledger = ledger
        self._by_name = {node.name: node for node in nodes}
        self._machines: dict[str, Machine] = {}
        self._names = {gpu_type: [node.cards[0].placed.node for node in pool.nodes] for gpu_type, pool in pools.items()}
        self._places: dict[str, list[Place]] = {}
        for gpu_type, names in self._names.items():
            for position, name in enumerate(names):
                self._places.setdefault(name, []).append((pools[gpu_type], position))
        self._node_of = {gpu.id: node.name for node in self._by_name.values() for gpu in node.gpus}
        self._asked: dict[str, int] = {}
        self._asked_version = -1

    def matters(self, job: Waiting) -> bool:
        """Whether CPUs and memory may bound a job: it asks for some, or another one does."""
        return job.share is not None or bool(self._ledger.shares)

    def asked_on(self, pool: Pool) -> int:
        """The mask of the nodes of a pool on which a job has rows that asks for anything."""
        ledger = self._ledger
        if self._asked_version != ledger.shares_version:
            self._asked_version = ledger.shares_version
            self._asked.clear()
            rows = [row for owner in ledger.shares for row in ledger.by_reservation.get(owner, ())]
            names = {self._node_of[gpu_id] for gpu_id, _ in rows if gpu_id in self._node_of}
            for place_pool, position in [place for name in names for place in self._places.get(name, ())]:
                self._asked[place_pool.gpu_type] = self._asked.get(place_pool.gpu_type, 0) | 1 << position
        return self._asked.get(pool.gpu_type, 0)

    def _machine(self, pool: Pool, position: int) -> Machine:
        name = self._names[pool.gpu_type][position]
        machine = self._machines.get(name)
        if machine is None:
            node = self._by_name[name]
            calendars = {gpu.id: self._ledger.calendar(gpu.id) for gpu in node.gpus}
            machine = self._machines[name] = Machine(node, calendars)
        return machine

    def _doubtful(self, job: Waiting, pool: Pool, members: Iterable[int]) -> list[tuple[int, Machine]]:
        """Those of these nodes that are to be looked at for a job, by position."""
        asked = self.asked_on(pool)
        answer = []
        for position in members:
            if asked >> position & 1:
                answer.append((position, self._machine(pool, position)))
            elif job.share is not None:
                machine = self._machine(pool, position)
                if machine.exceeds(job.share, job.gpus):
                    answer.append((position, machine))
        return answer

    def unfit(self, job: Waiting, pool: Pool, at: int, end: int) -> int:
        """The mask of the nodes with enough free GPUs that lack CPUs or memory for a job during [at, end)."""
        members = [node.position for node in pool.with_free(job.gpus)]
        return sum(
            1 << position
            for position, machine in self._doubtful(job, pool, members)
            if not self._fits(job, machine, at, end)
        )

    def _fits(self, job: Waiting, machine: Machine, at: int, end: int) -> bool:
        return machine.fits(job.share, job.gpus, (at, end), machine.use(self._ledger.shares, at, job.id))

    def fits_on(self, job: Waiting, pool: Pool, positions: Iterable[int], at: int, end: int) -> bool:
        """Whether these nodes have enough for a job during [at, end), beside all others."""
        return not self.matters(job) or all(
            self._fits(job, machine, at, end) for _, machine in self._doubtful(job, pool, positions)
        )

    def timelines(
        self, job: Waiting, profile: PoolProfile, pool: Pool, at: int, instead: Mapping[int, Timeline]
    ) -> Mapping[int, Timeline]:
        """When GPUs are free for a job on nodes where CPUs or memory may bound it; `instead` are known otherwise."""
        if not self.matters(job):
            return instead
        positions = self.asked_on(pool) if job.share is None else (1 << len(pool.nodes)) - 1
        members = [place.bit_length() - 1 for place in bits(positions)]
        narrow = {
            position: machine.narrowed(
                instead.get(position) or profile.timeline(position, at),
                job.share,
                job.gpus,
                machine.use(self._ledger.shares, at, job.id),
            )
            for position, machine in self._doubtful(job, pool, members)
            if len(pool.nodes[position].cards) >= job.gpus
        }
        return {**instead, **narrow}

    def overfull(self, gpu_ids: Iterable[int], at: int) -> bool:
        """Whether on the node of one of these GPUs more is taken than there is."""
        if not self._ledger.shares:
            return False
        places = [self._places.get(self._node_of.get(gpu_id, ""), ()) for gpu_id in gpu_ids]
        return any(
            self.asked_on(pool) >> position & 1 and self._machine(pool, position).is_overfull(self._ledger.shares, at)
            for pool, position in {place for node_places in places for place in node_places}
        )

    def with_others(self, places: set[Place | None], gpu_ids: Iterable[int]) -> set[Place | None]:
        """These places, and those of other pools on the same nodes, where CPUs and memory are given back, too."""
        if not self._ledger.shares:
            return places
        return places.union(
            *(self._places.get(self._node_of[gpu_id], ()) for gpu_id in gpu_ids if gpu_id in self._node_of)
        )

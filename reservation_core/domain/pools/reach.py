"""Where a job may run: the pools that could run it, and the nodes in them that it avoids.

A job avoids the nodes where its pods could not start (see `starts`). If other nodes could run it, whoever holds them
now, it uses only those; else it uses all nodes, the others first.
"""

from dataclasses import dataclass, field

from reservation_core.domain.plan import Shape, Waiting
from reservation_core.domain.pools.pool import NOTHING, Avoided, Pool
from reservation_core.domain.pools.waiting_reasons import Capacity
from reservation_core.domain.request_terms import Share

_REMEMBERED = 10_000


@dataclass(slots=True)
class _Place:
    pools: list[Pool]
    avoided: dict[str, Avoided]
    types: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.types = frozenset(pool.gpu_type for pool in self.pools)


class Reach:
    """Answers for one inventory, with a cache."""

    def __init__(self, pools: dict[str, Pool], capacity: Capacity) -> None:
        self._pools = pools
        self._capacity = capacity
        self._known: dict[tuple[str | None, tuple[int, int, frozenset[str], Share | None]], _Place] = {}

    def pools_for(self, gpu_type: str | None, shape: Shape) -> list[Pool]:
        """The pools that could run such a job if nothing were held."""
        return self._place(gpu_type, shape).pools

    def types_for(self, gpu_type: str | None, shape: Shape) -> frozenset[str]:
        """The types of the pools that could run such a job if nothing were held."""
        return self._place(gpu_type, shape).types

    def pools_of(self, job: Waiting) -> list[Pool]:
        """The pools that could run a job if nothing were held."""
        # A shape is a tuple; making one takes longer than looking it up.
        known = self._known.get((job.gpu_type, (job.gpus, job.nodes, job.avoid_nodes, job.share)))
        return self._place(job.gpu_type, job.shape).pools if known is None else known.pools

    def avoided(self, pool: Pool, job: Waiting) -> Avoided:
        """The nodes that a job avoids in one of its pools."""
        return self._place(job.gpu_type, job.shape).avoided[pool.gpu_type] if job.avoid_nodes else NOTHING

    def _place(self, gpu_type: str | None, shape: Shape) -> _Place:
        known = self._known.get((gpu_type, shape))
        if known is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            known = self._known[gpu_type, shape] = self._find(gpu_type, shape)
        return known

    def _find(self, gpu_type: str | None, shape: Shape) -> _Place:
        types = self._pools if gpu_type is None else (gpu_type,)
        able = [
            self._pools[pool_type]
            for pool_type in types
            if self._capacity.could_run_on(pool_type, shape.gpus, shape.nodes, shape.share)
        ]
        if not shape.avoid:
            return _Place(able, {})
        masks = {pool.gpu_type: pool.positions_of(shape.avoid) for pool in able}
        small = frozenset() if shape.share is None else self._capacity.without_enough(shape.gpus, shape.share)
        elsewhere = [
            pool
            for pool in able
            if pool.could_run(shape.gpus, shape.nodes, masks[pool.gpu_type] | pool.positions_of(small))
        ]
        if elsewhere:
            return _Place(elsewhere, {pool.gpu_type: Avoided(never=masks[pool.gpu_type]) for pool in elsewhere})
        return _Place(able, {pool.gpu_type: Avoided(last=masks[pool.gpu_type]) for pool in able})

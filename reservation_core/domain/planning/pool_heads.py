"""The head of each pool: the first job in the queue that has no slot and can't start."""

from dataclasses import dataclass

from reservation_core.domain.calendar import OVERRUN, length_micros
from reservation_core.domain.plan import Waiting
from reservation_core.domain.planning.gpu_pools import GpuPools
from reservation_core.domain.pools.pool import Pool, Shadow


@dataclass(slots=True)
class _Head:
    job: Waiting
    shadow: Shadow | None = None
    version: int = -1


class PoolHeads:
    """The heads of these pools, at most one for each type, with their shadows.

    A shadow is computed when another job could take GPUs from it.
    """

    def __init__(self, pools: GpuPools) -> None:
        self._pools = pools
        self._heads: dict[str, _Head] = {}
        self._before: dict[str, _Head] = {}
        self._look_again_at: dict[str, int] = {}

    def __contains__(self, gpu_type: str) -> bool:
        return gpu_type in self._heads

    def asks(self, gpu_type: str) -> bool:
        """Whether a pool's head asks for CPUs or memory."""
        return self._heads[gpu_type].job.share is not None

    @property
    def jobs(self) -> dict[str, Waiting]:
        """The heads by type of pool."""
        return {gpu_type: head.job for gpu_type, head in self._heads.items()}

    def begin_pass(self, gpu_types: set[str]) -> None:
        """Forget the heads of these pools: a pass finds them again."""
        self._before = {gpu_type: self._heads.pop(gpu_type) for gpu_type in gpu_types & self._heads.keys()}

    def drop(self, job: Waiting) -> None:
        """Note that a job heads no pool any more."""
        for gpu_type in [gpu_type for gpu_type, head in self._heads.items() if head.job.id == job.id]:
            del self._heads[gpu_type]
            self._pools.plan_again(gpu_type)

    def choose(self, job: Waiting, pools: list[Pool], at: int) -> None:
        """Make a job that can't start the head of that of these pools, of those without one, where it starts first."""
        headless = [pool for pool in pools if pool.gpu_type not in self._heads]
        if len(headless) > 1:
            # Without a free GPU it does not matter which pool it heads; when one comes free all is decided anew.
            if not any(pool.free for pool in pools):
                return
            self._note_overruns(headless, at)
            length = length_micros(job.length)
            never = {pool.gpu_type: self._pools.never(pool, job) for pool in headless}
            headless.sort(
                key=lambda pool: (
                    pool.earliest(job.gpus, job.nodes, length, at, never[pool.gpu_type]),
                    pool.gpu_type,
                )
            )
        for pool in headless[:1]:
            before = self._before.get(pool.gpu_type)
            known = before is not None and before.job is job and before.version == pool.version
            self._heads[pool.gpu_type] = before if before is not None and known else _Head(job)

    def shadow(self, pool: Pool, at: int) -> Shadow | None:
        """The earliest fit of a pool's head."""
        head = self._heads.get(pool.gpu_type)
        if head is None:
            return None
        if head.shadow is None:
            job = head.job
            never = self._pools.never(pool, job)
            head.shadow = self._pools.shadow(pool, job, at, never)
            head.version = -1 if pool.overrun else pool.version
            self._note_overruns([pool], at)
        return head.shadow

    def _note_overruns(self, pools: list[Pool], at: int) -> None:
        """Move the guessed ends of pods that should have ended already, as time passes."""
        for pool in pools:
            if pool.overrun:
                self._look_again_at[pool.gpu_type] = at + OVERRUN

    def note_time(self, at: int) -> None:
        """Look again at the pools where a guess is over."""
        for gpu_type in [gpu_type for gpu_type, when in self._look_again_at.items() if when <= at]:
            del self._look_again_at[gpu_type]
            self._pools.plan_again(gpu_type)

    def settle(self, backfilled: set[str], at: int) -> None:
        """Have later jobs looked at again where backfill has moved the earliest fit to other GPUs."""
        for gpu_type in backfilled & self._heads.keys():
            pool, head = self._pools.by_type[gpu_type], self._heads[gpu_type]
            before, head.shadow = head.shadow, None
            if pool.free and self.shadow(pool, at) != before:
                self._pools.plan_again(gpu_type)

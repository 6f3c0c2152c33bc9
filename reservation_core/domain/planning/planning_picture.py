"""The planner's picture of the world, made of parts that keep their own rules: what changes one is passed on to others.

`start_decisions`, `slot_decisions` and `wait_estimates` decide on it.
"""

from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from reservation_core.domain.calendar import FOREVER, length_micros, to_micros
from reservation_core.domain.cards.placement_policies import DEFAULT_POLICY, PlacementPolicy
from reservation_core.domain.model import Node
from reservation_core.domain.plan import Asker, Commitment, PlanningSnapshot, Waiting
from reservation_core.domain.planning.gpu_pools import GpuPools
from reservation_core.domain.planning.open_rows import Ledger
from reservation_core.domain.planning.pool_heads import PoolHeads
from reservation_core.domain.planning.standings import Orders
from reservation_core.domain.planning.waiting_queue import Key, WaitingQueue
from reservation_core.domain.planning.walking.slot_walk import SlotWalk
from reservation_core.domain.policy.limits import NO_POLICY
from reservation_core.domain.policy.quota_book import QuotaBook
from reservation_core.domain.policy.quota_meters import Amount
from reservation_core.domain.policy.rules import Holding

_RELEASED = 1000
"""How many jobs that are held back and have no slot are looked at again at once."""


class Picture:
    """A snapshot, kept up to date: open rows, waiting jobs, the pools of GPUs and their heads, quotas, and slots' walk.

    One process, no threads. An earlier `now` than the last one counts as the last one. Promised starts are `slack`
    (microseconds) later than the slots that they are given with. Jobs start before the time `until`, and end by it.

    `dependants` wait for other jobs and are not in the queue; `is_followed` says whether one has a slot after a job's,
    `waits_for_end` whether one waits for the end of another job, at any distance.
    """

    def __init__(
        self,
        snapshot: PlanningSnapshot,
        policy: PlacementPolicy = DEFAULT_POLICY,
        slack: timedelta = timedelta(0),
        until: int = FOREVER,
    ) -> None:
        self._policy = policy
        self.slack = length_micros(slack)
        self.until = until
        self.ledger = Ledger(snapshot.commitments)
        self.queue = WaitingQueue(snapshot.waiting, snapshot.complete_types, self.ledger.slots)
        self.pools = GpuPools(snapshot.nodes, self.ledger, policy)
        self.heads = PoolHeads(self.pools)
        self.quotas = QuotaBook(NO_POLICY, {})
        self.walk = SlotWalk()
        self.at = -FOREVER
        self.dependants: dict[str, Waiting] = {}
        self.is_followed: Callable[[str], bool] = lambda _: False
        self.waits_for_end: Callable[[str, str], bool] = lambda *_: False

    def set_nodes(self, nodes: Iterable[Node]) -> None:
        """Replace the inventory."""
        nodes = tuple(nodes)
        if nodes != self.pools.nodes:
            self.pools = GpuPools(nodes, self.ledger, self._policy)
            self.heads = PoolHeads(self.pools)
            self.walk.looked.clear()
            self.walk.passed.clear()

    def set_quotas(self, quotas: QuotaBook) -> None:
        """Quotas that hold from now on; they must know what is held and booked, and learn the slots here."""
        self.quotas = quotas
        for job_id in self.ledger.slots:
            self.claim_slot(job_id)
        self.queue.release_all()
        self.pools.plan_again(None)
        self.pools.walk_again()

    def note_held(self, holdings: Iterable[Holding]) -> bool:
        """Note all that is held and booked; true when a user has less than before."""
        waiting = ChainMap(self.queue.jobs, self.dependants) if self.dependants else self.queue.jobs
        freed = self.quotas.note_held(holdings, waiting)
        if freed:
            self.pools.free_quotas(freed)
        # Jobs with a slot are moved up to now as soon as that may be. The others are asked in turns.
        self.queue.release_some(_RELEASED)
        return bool(freed)

    def claim(self, job: Waiting, gpu_type: str, start: int, end: int) -> Asker | None:
        """Note in the quotas what a job has from now on; returns the asker if any quota bounds it."""
        if self.quotas.is_empty or job.preemptible:  # which takes what nobody else has, and counts for no quota
            return None
        asker = job.asker(gpu_type)
        freed = self.quotas.claim(job.id, asker, Amount(job.all_gpus, start, end))
        if not self.quotas.binds(asker):
            return None
        if freed:
            self.pools.free_quotas(freed)
        return asker

    def claim_slot(self, job_id: str) -> None:
        """Note in the quotas what a waiting job has by its slot."""
        job = self.queue.jobs.get(job_id) or self.dependants.get(job_id)
        gpu_type = self.pools.type_of(self.ledger.by_reservation[job_id][0][0])
        if job is not None and gpu_type is not None:
            self.claim(job, gpu_type, *self.ledger.slots[job_id])

    def _drop_claim(self, reservation_id: str) -> None:
        freed = self.quotas.set_claims(reservation_id, ())
        if freed:
            self.pools.free_quotas(freed)

    def has_freed_quota(self, job: Waiting) -> bool:
        """Whether a quota that bounds a job has more room than when a walk looked at the job last."""
        freed = self.pools.freed_quotas
        return bool(freed) and any(
            self.quotas.counts_any(job.asker(pool.gpu_type), freed) for pool in self.pools.for_job(job)
        )

    def within_quotas(self, job: Waiting, gpu_type: str, start: int, length: int) -> bool:
        """Whether a job may have GPUs of this type then, as far as quotas go."""
        if self.quotas.is_empty or job.preemptible:
            return True
        asker = job.asker(gpu_type)
        return not self.quotas.binds(asker) or self.quotas.earliest(asker, job.all_gpus, length, start, job.id) == start

    def set_shares(self, shares: Mapping[int, int]) -> None:
        """Order equal priorities by these ranks of their owners, smallest first; owners without one have 0."""
        if self.queue.set_shares(shares):
            self.walk.begin_again()
            self.pools.plan_again(None)

    def set_orders(self, orders: Orders) -> None:
        """Order the jobs of projects so from now on."""
        if self.queue.set_orders(orders):
            self.walk.begin_again()
            self.pools.plan_again(None)

    def set_reservation(self, reservation_id: str, waiting: Waiting | None, commitments: Sequence[Commitment]) -> None:
        """Replace everything known about one reservation; None and nothing mean that it is gone.

        Repeating what is known changes nothing. A waiting job whose place is beyond the part of its queue that is in
        memory is left out, unless it has a slot: it comes by a refill.
        """
        had = reservation_id in self.ledger.by_reservation
        before = self.ledger.allocated(reservation_id)
        changed = self.ledger.replace(reservation_id, commitments)
        if changed:
            self.pools.mark_changed(changed, freed=had)
            if had:
                self.walk.forget_tries()
            self.pools.count_pieces(before, -1)
            self.pools.count_pieces(self.ledger.allocated(reservation_id), 1)
        slotted = reservation_id in self.ledger.slots
        if slotted:
            self.pools.doubt_slot(reservation_id)
        known = self.queue.jobs.get(reservation_id)
        if known != waiting:
            if known is not None:
                self._leave_queue(known)
            if waiting is not None:
                self.queue.add(waiting, slotted=slotted)
                if slotted and (known is None or known.asks != waiting.asks):
                    self.pools.note_asked(waiting)
                if known is not None and known.key != waiting.key:
                    self.walk.begin_again()
        elif known is not None:
            self.set_slotted(known, slotted)
        if slotted:
            self.claim_slot(reservation_id)
        elif waiting is not None or not commitments:
            self._drop_claim(reservation_id)

    def set_slotted(self, job: Waiting, has_slot: bool) -> None:
        """Note whether a job has a slot: a head that has one needs no shadow, and a job that lost one may be a head."""
        if not has_slot:
            self.queue.take_slot(job)
        elif job.id not in self.queue.slotted:
            self.queue.give_slot(job)
            self.heads.drop(job)

    def _leave_queue(self, job: Waiting) -> None:
        self.queue.remove(job)
        self.heads.drop(job)

    def hold_back(self, job: Waiting) -> None:
        """Hold back a job that a quota does not let start now: it heads no pool."""
        self.queue.hold_back(job)
        self.heads.drop(job)

    def clear_slot_rows(self, job_id: str) -> None:
        """Take a waiting job's slot out of the calendar."""
        self.pools.mark_changed(self.ledger.set_rows(job_id, (), planned=False), freed=True)

    def forget_slot(self, job_id: str) -> None:
        """Drop a slot that was decided and not written: the job has been changed, or is being changed just now."""
        self.drop_slot(job_id)
        job = self.queue.jobs.get(job_id)
        if job is not None:
            self.set_slotted(job, False)

    def drop_slot(self, job_id: str) -> None:
        """Take a waiting job's slot out of the calendar, and what it has out of the quotas."""
        self._drop_claim(job_id)
        self.clear_slot_rows(job_id)

    def needs_refill(self, low_water: int) -> list[tuple[str | None, Key | None]]:
        """Requested types whose part of the queue in memory is short and goes on in the database.

        Answers each with the key (-priority, seq) to go on after (None: from the start). Jobs that the inventory can't
        run count only where it can run none at all: a window full of them must not hide those that could start.
        """
        wanted: list[tuple[str | None, Key | None]] = []
        by_type, reach = self.pools.by_type, self.pools.reach
        for gpu_type, end in self.queue.ends.items():
            queues = self.queue.of_type(gpu_type)
            if gpu_type in by_type if gpu_type is not None else by_type:
                queues = [shape_queue for shape_queue in queues if reach.pools_for(gpu_type, shape_queue.shape)]
            if sum(len(shape_queue) for shape_queue in queues if not shape_queue.preemptible) < low_water:
                wanted.append((gpu_type, end))
        return wanted

    def refill(self, gpu_type: str | None, jobs: Sequence[Waiting], *, complete: bool) -> None:
        """Append the next jobs of one requested type's queue; `complete` says that there are none after them.

        Jobs that hold GPUs by now are left out: the database was read before they started.
        """
        self.queue.refill(gpu_type, jobs, complete=complete)
        slots = self.ledger.slots
        for job in jobs:
            known = self.queue.jobs.get(job.id)
            if known == job or (job.id in self.ledger.by_reservation and job.id not in slots):
                continue
            if known is not None:
                self._leave_queue(known)
            self.queue.add(job, slotted=job.id in slots)
            if job.id in slots:
                self.pools.note_asked(job)
        self.pools.plan_again(gpu_type)

    def catch_up(self, now: datetime) -> int:
        """Let time pass up to `now`; returns it in microseconds."""
        self.at = max(self.at, to_micros(now))
        self.pools.mark_changed(self.ledger.edges_until(self.at), freed=False)
        self.heads.note_time(self.at)
        if self.queue.note_time(self.at):
            self.walk.begin_again()
        self.pools.refresh(self.at)
        return self.at

"""The planner's whole picture: the common queue, the queue of each booking within the booking's own GPUs, and that of
jobs without GPUs; and the jobs that wait for others, which are in no queue.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from reservation_core.domain.calendar import Row, to_micros
from reservation_core.domain.cards.placement_policies import DEFAULT_POLICY, PlacementPolicy
from reservation_core.domain.model import Node
from reservation_core.domain.plan import (
    Commitment,
    LateStart,
    PlannedSlot,
    PlanningSnapshot,
    Start,
    WaitEstimate,
    Waiting,
    by_reservation,
)
from reservation_core.domain.planning.booking_planning import BookingPool
from reservation_core.domain.planning.chains.chain_links import ChainLinks, Span, late_by
from reservation_core.domain.planning.chains.chain_slots import plan_chain_slots
from reservation_core.domain.planning.planning_picture import Picture
from reservation_core.domain.planning.slot_decisions import SlotPlan, late_starts, plan_slots
from reservation_core.domain.planning.standings import Orders
from reservation_core.domain.planning.start_decisions import plan_starts
from reservation_core.domain.planning.wait_estimates import estimate_waits
from reservation_core.domain.planning.waiting_queue import Key
from reservation_core.domain.pools.cpu_places import cpu_nodes
from reservation_core.domain.request_terms import CPU_TYPE


class CalendarPicture:
    """Passes what changes on to the `common` picture and to the bookings concerned, and collects what is decided.

    What runs within a booking is no part of the common calendar, where the booking itself is, but for one thing: while
    its pod may exist, no other job can have its GPUs, however late it is. Quotas hold in the common queue alone.

    Jobs without GPUs have a picture of their own, of what nodes keep for them: nothing in `common` depends on them.
    """

    def __init__(
        self, snapshot: PlanningSnapshot, policy: PlacementPolicy = DEFAULT_POLICY, slack: timedelta = timedelta(0)
    ) -> None:
        self._policy = policy
        self.common = Picture(
            PlanningSnapshot(
                snapshot.nodes,
                tuple(row for row in snapshot.commitments if (row.booking_id is None or row.held) and row.gpu_id >= 0),
                tuple(job for job in snapshot.waiting if job.booking_id is None and job.gpu_type != CPU_TYPE),
                snapshot.complete_types,
            ),
            policy,
            slack,
        )
        self.cpu_jobs = Picture(
            PlanningSnapshot(
                cpu_nodes(snapshot.nodes),
                tuple(row for row in snapshot.commitments if row.gpu_id < 0),
                tuple(job for job in snapshot.waiting if job.gpu_type == CPU_TYPE),
                snapshot.complete_types,
            ),
            policy,
            slack,
        )
        self._bookings: dict[str, BookingPool] = {}
        self._booking_of: dict[str, str] = {}
        within = by_reservation(row for row in snapshot.commitments if row.booking_id is not None)
        waiting = {job.id: job for job in snapshot.waiting if job.booking_id is not None}
        for reservation_id in {**within, **waiting}:
            self._set_within(reservation_id, waiting.get(reservation_id), within.get(reservation_id, []))
        self._links = ChainLinks()
        self._freed = False
        for picture in (self.common, self.cpu_jobs):
            picture.is_followed = self._is_followed
            picture.waits_for_end = self._links.waits_for_end
        for job in snapshot.dependants:
            picture = self.of(job)
            if job.id in picture.ledger.slots or job.id not in picture.ledger.by_reservation:
                self._put_dependant(job)

    def set_nodes(self, nodes: Iterable[Node]) -> None:
        """Replace the inventory."""
        nodes = tuple(nodes)
        before = self.common.pools
        self.common.set_nodes(nodes)
        self.cpu_jobs.set_nodes(cpu_nodes(nodes))
        if self.common.pools is not before:
            for pool in self._bookings.values():
                pool.forget()
        self._links.note_all()

    def set_reservation(self, reservation_id: str, waiting: Waiting | None, commitments: Sequence[Commitment]) -> None:
        """Replace everything known about one reservation; None and nothing mean that it is gone."""
        released = self._links.drop(reservation_id)
        if released is not None:
            picture = self.of(released)
            del picture.dependants[reservation_id]
            picture.queue.promises.pop(reservation_id, None)
        if waiting is not None and waiting.needs is not None:
            self._put_dependant(waiting)
            self.of(waiting).set_reservation(reservation_id, None, commitments)
        else:
            self._set_reservation(reservation_id, waiting, commitments)
            if released is not None and waiting is not None:
                # Its own slot is no longer in its way: it may start now.
                gpus = [gpu_id for gpu_id, _ in self.of(waiting).ledger.by_reservation.get(reservation_id, ())]
                self.of(waiting).pools.mark_changed(gpus, freed=True)
        self._links.note(reservation_id)

    def _put_dependant(self, job: Waiting) -> None:
        picture = self.of(job)
        picture.dependants[job.id] = job
        picture.queue.owners.add(job.owner)
        if job.promised_at is not None:
            picture.queue.promises[job.id] = job.promised_at
        self._links.put(job)
        if job.id in picture.ledger.slots:
            picture.claim_slot(job.id)

    def _is_followed(self, job_id: str) -> bool:
        """Whether a job with a slot waits for a job."""
        return any(
            dependant in self.common.ledger.slots or dependant in self.cpu_jobs.ledger.slots
            for dependant in self._links.dependants(job_id)
        )

    def _span_of(self, job_id: str) -> Span | None:
        """When a job has its GPUs, by its slot or the rows that it has; None where others may take them before."""
        for picture in (self.common, self.cpu_jobs):
            rows = picture.ledger.by_reservation.get(job_id)
            if rows and job_id not in picture.ledger.preemptible:
                late = late_by(picture.ledger, job_id, picture.at) if job_id in picture.ledger.due else 0
                return Span(min(row[0] for _, row in rows) + late, max(row[1] for _, row in rows) + late)
        pool = self._bookings.get(self._booking_of.get(job_id, ""))
        within = () if pool is None else pool.rows.get(job_id, ())
        if not within or any(row.preemptible for row in within):
            return None
        return Span(to_micros(min(row.start for row in within)), to_micros(max(row.end for row in within)))

    def _set_reservation(self, reservation_id: str, waiting: Waiting | None, commitments: Sequence[Commitment]) -> None:
        if self._has_no_gpus(reservation_id, waiting, commitments):
            self.cpu_jobs.set_reservation(reservation_id, waiting, commitments)
            return
        waits_within = waiting is not None and waiting.booking_id is not None
        if self._bookings:
            self._note_gpus_of(reservation_id, commitments)
        if reservation_id in self._bookings:
            self._bookings[reservation_id].forget()
        within = [commitment for commitment in commitments if commitment.booking_id is not None]
        if within or waits_within or reservation_id in self._booking_of:
            self._set_within(reservation_id, waiting, within)
            waiting = None if waits_within else waiting
            commitments = [commitment for commitment in commitments if commitment.booking_id is None or commitment.held]
        self.common.set_reservation(reservation_id, waiting, commitments)

    def _has_no_gpus(self, reservation_id: str, waiting: Waiting | None, commitments: Sequence[Commitment]) -> bool:
        if waiting is not None:
            return waiting.gpu_type == CPU_TYPE
        if commitments:
            return commitments[0].gpu_id < 0
        return reservation_id in self.cpu_jobs.queue.jobs or reservation_id in self.cpu_jobs.ledger.by_reservation

    def of(self, job: Waiting) -> Picture:
        """The picture in which a job waits that is not within a booking."""
        return self.cpu_jobs if job.gpu_type == CPU_TYPE else self.common

    def set_shares(self, ranks: Mapping[int, int]) -> None:
        """Order equal priorities by these ranks of their owners, see `Picture`."""
        self.common.set_shares(ranks)
        self.cpu_jobs.set_shares(ranks)

    def set_orders(self, orders: Orders) -> None:
        """Order the jobs of projects so from now on."""
        self.common.set_orders(orders)
        self.cpu_jobs.set_orders(orders)

    def needs_refill(self, low_water: int) -> list[tuple[str | None, Key | None]]:
        """Requested types whose queue goes on in the database, see `Picture`."""
        return self.common.needs_refill(low_water) + self.cpu_jobs.needs_refill(low_water)

    def refill(self, gpu_type: str | None, jobs: Sequence[Waiting], *, complete: bool) -> None:
        """Append the next jobs of one requested type's queue, see `Picture`."""
        (self.cpu_jobs if gpu_type == CPU_TYPE else self.common).refill(gpu_type, jobs, complete=complete)

    def _note_gpus_of(self, reservation_id: str, commitments: Sequence[Commitment]) -> None:
        """Look anew at the bookings to whose GPUs a job comes, or whose GPUs it leaves, that is not one of theirs."""
        rows = self.common.ledger.by_reservation
        gpus = {gpu_id for gpu_id, _ in rows.get(reservation_id, ())} | {
            commitment.gpu_id for commitment in commitments
        }
        for booking_id, pool in self._bookings.items():
            if booking_id != self._booking_of.get(reservation_id) and gpus.intersection(
                gpu_id for gpu_id, _ in rows.get(booking_id, ())
            ):
                pool.forget()

    def _set_within(self, reservation_id: str, waiting: Waiting | None, rows: Sequence[Commitment]) -> None:
        booking_id = self._booking_of.pop(reservation_id, None)
        if waiting is not None and waiting.booking_id is not None:
            booking_id = waiting.booking_id
        elif rows:
            booking_id = rows[0].booking_id
        if booking_id is None:
            return
        pool = self._bookings.setdefault(booking_id, BookingPool(booking_id, self._policy))
        pool.set_reservation(reservation_id, waiting, rows)
        if waiting is not None or rows:
            self._booking_of[reservation_id] = booking_id
        if pool.empty:
            del self._bookings[booking_id]

    def slotted(self, ids: Iterable[str]) -> list[str]:
        """Those of these reservations that have a slot as far as is known."""
        slots, others = self.common.ledger.slots, self.cpu_jobs.ledger.slots
        return [
            reservation_id
            for reservation_id in ids
            if reservation_id in self._booking_of or reservation_id in slots or reservation_id in others
        ]

    @property
    def has_waiting(self) -> bool:
        """Whether any job waits."""
        waits = self.common.queue.jobs or self.cpu_jobs.queue.jobs or self.common.dependants
        return bool(waits) or any(pool.waiting for pool in self._bookings.values())

    def forget_slot(self, job_id: str) -> None:
        """Drop a slot that was decided and not written: the job has been changed, or is being changed just now."""
        booking_id = self._booking_of.get(job_id)
        if self._has_no_gpus(job_id, None, ()):
            self.cpu_jobs.forget_slot(job_id)
        elif booking_id is None:
            self.common.forget_slot(job_id)
        else:
            pool = self._bookings[booking_id]
            pool.set_reservation(job_id, pool.waiting.get(job_id), ())
        self._links.note(job_id)

    def plan_starts(self, now: datetime, limit: int) -> list[Start]:
        """Decide which jobs start now, at most `limit`; the decision is applied to this picture at once."""
        starts = plan_starts(self.common, now, limit)
        for start in starts if self._bookings else ():
            self._note_gpus_of(start.id, ())
        for pool in list(self._bookings.values()):
            pool.note_time(to_micros(now))
            if len(starts) < limit and pool.changed and pool.waiting:
                own = [gpu_id for gpu_id, _ in self.common.ledger.by_reservation.get(pool.booking_id, ())]
                if self.common.pools.shares.overfull(own, to_micros(now)):
                    continue  # a pod that should have ended still has what the booking was promised
                within = pool.plan_starts(self._picture_of(pool, now), now, limit - len(starts))
                for start in within:
                    self.common.set_reservation(start.id, None, pool.rows[start.id])
                    self._note_gpus_of(start.id, ())
                starts += within
        if len(starts) < limit and (self.cpu_jobs.queue.jobs or self.cpu_jobs.dependants):
            starts += plan_starts(self.cpu_jobs, now, limit - len(starts))
        if self._links.jobs:
            for start in starts:
                self._links.note(start.id)
        return starts

    def _picture_of(self, pool: BookingPool, now: datetime) -> Picture | None:
        ledger = self.common.ledger
        own = ledger.by_reservation.get(pool.booking_id, ())
        holds: list[tuple[int, Row]] = [
            (gpu_id, row)
            for gpu_id, _ in own
            for row in ledger.calendar(gpu_id).rows
            if row[2] and row[3] != pool.booking_id
        ]
        return pool.take_picture(self.common.pools.nodes, own, holds, now)

    def plan_slots(
        self, now: datetime, promises: int, limit: int, enough: Callable[[], bool] = lambda: False
    ) -> SlotPlan:
        """Slots for the first `promises` of the common queue and without GPUs, and for all within bookings.

        `enough` is asked after each job, and after each booking: true ends this part of the work. Bookings take turns.
        """
        can_start = self._links.jobs and self._can_start()
        plan = plan_slots(self.common, now, promises, limit, enough)
        slots = list(plan.slots)
        more = plan.more
        looked_at = 0
        for booking_id, pool in list(self._bookings.items()):
            if pool.waiting and pool.slots_wanted and not pool.changed:
                if looked_at and enough():
                    more = True
                    break
                looked_at += 1
                self._bookings[booking_id] = self._bookings.pop(booking_id)  # the others are next
                slots += pool.plan_slots(self._picture_of(pool, now), now, limit, enough)
                more = more or pool.slots_wanted
        if self.cpu_jobs.queue.jobs:
            plan = plan_slots(self.cpu_jobs, now, promises, limit, enough)
            slots += plan.slots
            more = more or plan.more
        if self._links.jobs and not can_start:
            plan = self._plan_chains(slots, now, promises, limit, enough)
            slots += plan.slots
            more = more or plan.more
        return SlotPlan(slots, more or bool(can_start))

    def _can_start(self) -> bool:
        """Whether a job could still be started beside those that wait for others: it goes first."""
        pictures = [picture for picture in (self.common, self.cpu_jobs) if picture.dependants]
        self._freed = self._freed or any(picture.pools.freed for picture in pictures)
        return any(picture.pools.dirty or picture.queue.arrivals for picture in pictures)

    def _plan_chains(
        self, slots: Iterable[PlannedSlot], now: datetime, promises: int, limit: int, enough: Callable[[], bool]
    ) -> SlotPlan:
        """Slots for jobs that wait for others, after these for others were decided."""
        links = self._links
        for slot in slots:
            links.note(slot.id)
        if self._freed and links.turns.first is None:
            self._freed = False
            links.note_all()
        return plan_chain_slots(links, (self.common, self.cpu_jobs), self._span_of, now, promises, limit, enough)

    def late_starts(self, now: datetime) -> list[LateStart]:
        """Jobs that can't start although their slot has come, and the jobs in their way."""
        late = late_starts(self.common, now) + late_starts(self.cpu_jobs, now)
        for pool in self._bookings.values():
            picture = self._picture_of(pool, now) if pool.waiting else None
            if picture is not None:
                late += late_starts(picture, now)
        return late

    def estimate_waits(self, now: datetime, limit: int) -> list[WaitEstimate]:
        """Estimates for the first `limit` jobs in the common queue and without GPUs, and for all within bookings."""
        estimates = estimate_waits(self.common, now, limit)
        if self.cpu_jobs.queue.jobs:
            estimates += estimate_waits(self.cpu_jobs, now, limit)
        for pool in self._bookings.values():
            if pool.waiting:
                estimates += pool.estimate_waits(self._picture_of(pool, now), now)
        return estimates
